/**
 * What a gate is. A gate is a rule that a machine checks: it reads the tree under `root` and answers what breaks the
 * rule. It never repairs, and it never skips: a part that it needs and does not find is a finding.
 */
export interface Finding {
  /** Relative to the root, with `/`. */
  readonly file: string;
  readonly line?: number;
  /** What is wrong, in one sentence. */
  readonly what: string;
  /** What to do about it, in one sentence. */
  readonly mend: string;
}

export interface Gate {
  readonly name: string;
  /** The reason for the rule; printed when it is broken. */
  readonly why: string;
  /** `note` prints one fact beside the gate's line, such as a size. */
  run(root: string, note: (fact: string) => void): Promise<Finding[]>;
}
