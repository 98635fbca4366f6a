/**
 * From the name that the vendor's tool prints to the short model word that pools, selectors and meters use:
 * `NVIDIA H100 80GB HBM3` is `h100`, `NVIDIA A100-SXM4-80GB` is `a100`. Memory and form factor are attributes of their
 * own, not part of the model.
 */
const VENDOR_WORDS = new Set(['nvidia', 'geforce', 'tesla', 'quadro', 'graphics', 'device', 'generation']);
const FORM_FACTOR = /^(sxm\d?|pcie\d*|nvl|mxm|hgx|oam)$/;
const MEMORY = /^(\d+gb|hbm\d?e?|\d+g|gddr\d\w?)$/;

function words(product: string): string[] {
  return product
    .trim()
    .toLowerCase()
    .split(/[\s_/-]+/)
    .map((w) => w.replace(/[^a-z0-9]/g, ''))
    .filter((w) => w !== '');
}

/** Undefined for a name with nothing left in it. */
export function gpuModel(product: string): string | undefined {
  const kept = words(product).filter((w) => !VENDOR_WORDS.has(w) && !FORM_FACTOR.test(w) && !MEMORY.test(w));
  return kept.length === 0 ? undefined : kept.join('-').slice(0, 63);
}

export function gpuFormFactor(product: string): string | undefined {
  return words(product).find((w) => FORM_FACTOR.test(w));
}
