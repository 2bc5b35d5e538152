// Reading messages of others: only own fields of the right type are ever looked at, and objects are never merged.
export type Bag = Record<string, unknown>;

/** The version of the protocol between page and frame. */
export const VERSION = 1;

export const own = (o: unknown, name: string): unknown => (typeof o === 'object' && o !== null && Object.hasOwn(o, name) ? (o as Bag)[name] : undefined);

/** A string field of at most max characters; "" for anything else. */
export function str(o: unknown, name: string, max = 200): string {
  const v = own(o, name);
  return typeof v === 'string' && v.length <= max ? v : '';
}

/** An array field; empty for anything else. */
export function list(o: unknown, name: string): unknown[] {
  const v = own(o, name);
  return Array.isArray(v) ? v : [];
}

/** A random name of 128 bits. */
export const random = () => Array.from(crypto.getRandomValues(new Uint8Array(16)), (b) => b.toString(16).padStart(2, '0')).join('');
