/**
 * The daemon's version. The build puts the one of package.json in place of the name below; from source it is a
 * development version.
 */
declare const BCD_BUILD_VERSION: string | undefined;

export const BCD_VERSION: string = typeof BCD_BUILD_VERSION === 'string' ? BCD_BUILD_VERSION : '0.1.0-dev';
