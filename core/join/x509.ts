/**
 * The one door to the X.509 library. It needs a reflection polyfill that must be evaluated before it, so nobody imports
 * the package directly. Everything it does rests on WebCrypto and runs in workerd, browsers and Node alike.
 */
import 'reflect-metadata';

export * from '@peculiar/x509';

/** The only kind of key that this product makes or signs. */
export const P256 = { name: 'ECDSA', namedCurve: 'P-256', hash: 'SHA-256' } as const;
