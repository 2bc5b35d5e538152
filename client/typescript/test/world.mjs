// What the Go test in test/tsclient has started: a server, a destination for
// proxies, keys, and the operations of api/openapi.yaml.
import { Tokenkeep } from 'tokenkeep';

export const world = JSON.parse(process.env.TOKENKEEP_WORLD);

/** The names of the operations that were called on the live server. */
export const called = new Set();

const patterns = world.operations.map(({ id, method, path }) => ({
  id,
  method: id === 'invokeProxy' ? undefined : method,
  path: new RegExp(`^${path.replace('/{rest}', '(/.*)?').replaceAll(/\{\w+\}/g, '[^/]+')}$`),
}));

async function recording(address, init) {
  const { pathname } = new URL(address);
  // The first: a literal path stands before one with a name in it.
  const found = patterns.find((p) => p.path.test(pathname) && (p.method ?? init.method) === init.method);
  called.add(found?.id ?? `${init.method} ${pathname}`);
  return fetch(address, init);
}

/** A client of the live server, with one of its keys or none. */
export const client = (key, options = {}) =>
  new Tokenkeep({ baseUrl: world.url, ...(key && { key }), fetch: recording, ...options });

/** The error with which a promise ends. */
export async function refused(promise) {
  try {
    await promise;
  } catch (e) {
    return e;
  }
  throw new Error('the call was not refused');
}

/** All items of an iterator, which must end. */
export async function collect(items, most = 1000) {
  const all = [];
  for await (const item of items) {
    all.push(item);
    if (all.length > most) throw new Error('the iterator does not end');
  }
  return all;
}
