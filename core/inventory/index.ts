/** What the rest of the product uses of inventories. */
export * from './conditions.ts';
export * from './devices.ts';
export * from './gpu-faults.ts';
export * from './hardware-key.ts';
export * from './inventory.ts';
export * from './review.ts';
