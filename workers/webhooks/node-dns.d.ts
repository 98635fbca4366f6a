/** The part of Node's module that Workers offer under nodejs_compat and that is used here. */
declare module 'node:dns/promises' {
  export function lookup(host: string, options: { all: true }): Promise<{ address: string; family: number }[]>;
}
