'use strict';

const fs = require('fs');
const Module = require('module');
const path = require('path');

const packages = require('../packages');
const { loadBundle } = require('./bundle');
const { classes } = require('./errors');

// The modules of Node that code of tenants may ask for. What is left out makes
// no sense in the sandbox, where there are no files, processes, terminals or
// further contexts: asking for it is an error at once, not a puzzle later.
const allowed = new Set([
  'assert', 'assert/strict', 'async_hooks', 'buffer', 'console', 'constants', 'crypto', 'diagnostics_channel', 'dns',
  'dns/promises', 'events', 'http', 'http2', 'https', 'net', 'os', 'path', 'path/posix', 'path/win32', 'perf_hooks',
  'process', 'punycode', 'querystring', 'readline', 'stream', 'stream/consumers', 'stream/promises', 'stream/web',
  'string_decoder', 'sys', 'timers', 'timers/promises', 'tls', 'url', 'util', 'util/types', 'zlib',
]);

const errorsModule = new Set(['tokenkeep/errors', '@basis-theory/basis-theory-reactor-formulas-sdk-js']);
const curated = new Set(packages.map((p) => p.name));
const builtin = new Set(Module.builtinModules);

function notFound(id, why) {
  const error = new Error(`Cannot find module '${id}'${why ? `: ${why}` : ''}`);
  error.code = 'MODULE_NOT_FOUND';
  error.requireStack = [];
  return error;
}

// confine keeps what the packages in a folder require within that folder, where
// Node's own look-up would go on to the folders above and through links.
function confine(root) {
  const inside = (file) => file.startsWith(root + path.sep);
  const resolve = Module._resolveFilename;
  Module._resolveFilename = function confined(id, parent, ...rest) {
    const file = resolve.call(this, id, parent, ...rest);
    const ours = parent && parent.filename && inside(parent.filename);
    if (ours && path.isAbsolute(file) && !inside(file)) throw notFound(id, 'it is outside the folder of packages');
    return file;
  };
}

// operatorRequire gives the packages that an operator installed into a folder
// with npm. They reach all of Node's modules, as their authors expect.
function operatorRequire(folder) {
  const root = fs.realpathSync(folder);
  confine(root);
  return Module.createRequire(path.join(root, 'package.json'));
}

// createRequire makes the `require` of tenant code: Node's modules, the errors,
// the curated packages in the folder `modules`, then what the operator installed
// in `extra`. A module is made once in a process.
function createRequire({ extra, modules = path.join(__dirname, 'modules') } = {}) {
  const operators = extra ? operatorRequire(extra) : null;
  const bundles = new Map(); // package → its functions by id

  function bundled(name, id) {
    if (!bundles.has(name)) bundles.set(name, loadBundle(modules, name));
    const bundle = bundles.get(name);
    return Object.hasOwn(bundle, id) ? bundle[id] : undefined;
  }

  // find returns a function that returns the module, or throws.
  function find(id) {
    if (typeof id !== 'string' || id === '') throw new TypeError('the argument of require must be the name of a module');
    const plain = id.startsWith('node:') ? id.slice(5) : id;
    if (allowed.has(plain) && builtin.has(plain)) return () => (plain === 'console' ? globalThis.console : require(plain));
    if (builtin.has(plain)) throw notFound(id, 'this module of Node is not there for reactor code');
    if (errorsModule.has(id)) return () => classes;

    const name = id.split('/', 1)[0];
    const make = curated.has(name) && bundled(name, id.replace(/\.js$/, ''));
    if (make) return make;
    if (!operators || curated.has(name) || id.startsWith('.') || path.isAbsolute(id)) throw notFound(id);
    try {
      operators.resolve(id);
    } catch (error) {
      throw error.code === 'MODULE_NOT_FOUND' ? notFound(id) : error;
    }
    return () => operators(id);
  }

  const tenantRequire = (id) => find(id)();
  tenantRequire.resolve = (id) => {
    find(id);
    return id;
  };
  tenantRequire.cache = Object.create(null);
  tenantRequire.main = undefined;
  return tenantRequire;
}

module.exports = { createRequire };
