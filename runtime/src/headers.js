'use strict';

const canonical = (name) => name.toLowerCase().replace(/(^|-)[a-z]/g, (s) => s.toUpperCase());

// headersObject returns an object with the given headers under their canonical
// names (Content-Type), in which every look-up ignores case. What code sets
// takes the canonical name too, so no header stands there twice.
function headersObject(plain) {
  const headers = {};
  const add = (name, value) => Object.defineProperty(headers, name, { value, writable: true, enumerable: true, configurable: true });
  for (const [name, value] of Object.entries(plain || {})) add(canonical(name), value);

  const own = (name) => (typeof name === 'string' && Object.hasOwn(headers, canonical(name)) ? canonical(name) : name);
  return new Proxy(headers, {
    get: (target, name) => Reflect.get(target, own(name)),
    has: (target, name) => Reflect.has(target, own(name)),
    set: (target, name, value) => (typeof name === 'string' ? Boolean(add(canonical(name), value)) : Reflect.set(target, name, value)),
    deleteProperty: (target, name) => Reflect.deleteProperty(target, own(name)),
    getOwnPropertyDescriptor: (target, name) => Reflect.getOwnPropertyDescriptor(target, own(name)),
    defineProperty: (target, name, descriptor) => Reflect.defineProperty(target, typeof name === 'string' ? canonical(name) : name, descriptor),
  });
}

module.exports = { headersObject };
