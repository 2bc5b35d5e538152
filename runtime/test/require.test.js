'use strict';

const assert = require('node:assert/strict');
const fs = require('node:fs');
const Module = require('node:module');
const os = require('node:os');
const path = require('node:path');
const test = require('node:test');

const { folder, modules, runtime } = require('./built');
const packages = require('../packages');

const require_ = runtime.createRequire({ modules });
const isNotFound = { code: 'MODULE_NOT_FOUND', message: /^Cannot find module '/, requireStack: [] };

const given = [
  'assert', 'assert/strict', 'async_hooks', 'buffer', 'console', 'crypto', 'dns', 'dns/promises', 'events', 'http', 'http2',
  'https', 'net', 'os', 'path', 'perf_hooks', 'process', 'punycode', 'querystring', 'readline', 'stream', 'stream/promises',
  'string_decoder', 'timers', 'timers/promises', 'tls', 'url', 'util', 'util/types', 'zlib',
];
const refused = [
  'child_process', 'cluster', 'dgram', 'domain', 'fs', 'fs/promises', 'inspector', 'module', 'repl', 'trace_events', 'tty',
  'v8', 'vm', 'worker_threads', '_http_agent',
];

for (const id of given) {
  test(`${id} is Node's own, with and without its prefix`, () => {
    assert.equal(require_(id), require(id));
    assert.equal(require_(`node:${id}`), require(id));
  });
}

for (const id of refused) {
  test(`${id} is refused`, () => {
    assert.ok(Module.builtinModules.includes(id), 'a module that Node does not have proves nothing');
    assert.throws(() => require_(id), isNotFound);
    assert.throws(() => require_(`node:${id}`), isNotFound);
    assert.throws(() => require_.resolve(id), isNotFound);
  });
}

test('every module of Node is either given or refused', () => {
  for (const id of Module.builtinModules) {
    try {
      assert.equal(require_(id), require(id));
    } catch (error) {
      assert.equal(error.code, 'MODULE_NOT_FOUND', id);
    }
  }
});

test('what is nowhere is not found', () => {
  for (const id of ['stripe', '@scope/thing', './x', '../runtime', '/etc/passwd', 'axios/lib/core', 'lodash/__proto__', 'lodash/../axios',
    'lodash/nothing', 'dayjs/plugin/nothing', 'node:axios', 'node:nothing', 'constructor', 'toString', '@basis-theory/other']) {
    assert.throws(() => require_(id), isNotFound, id);
  }
  for (const id of [undefined, null, '', 5, {}, []]) assert.throws(() => require_(id), TypeError);
});

test('the errors module answers to both names', () => {
  assert.equal(require_('tokenkeep/errors'), require_('@basis-theory/basis-theory-reactor-formulas-sdk-js'));
  assert.equal(require_('tokenkeep/errors'), runtime.errors);
});

test('console is the one of the moment', () => {
  const { console } = globalThis;
  try {
    globalThis.console = { log() {} };
    assert.equal(require_('console'), globalThis.console);
  } finally {
    globalThis.console = console;
  }
});

// folderOfItsOwn makes a folder that goes with the process.
function folderOfItsOwn() {
  const dir = fs.realpathSync(fs.mkdtempSync(path.join(os.tmpdir(), 'runtime-')));
  process.once('exit', () => fs.rmSync(dir, { recursive: true }));
  return dir;
}

test('a code cache that does not fit changes nothing', () => {
  const dir = folderOfItsOwn();
  fs.copyFileSync(path.join(modules, 'uuid.js'), path.join(dir, 'uuid.js'));
  for (const mode of ['jit', 'jitless']) fs.writeFileSync(path.join(dir, `uuid.${mode}.cache`), 'not a cache');
  assert.equal(runtime.createRequire({ modules: dir })('uuid').v4().length, 36);
  assert.throws(() => runtime.createRequire({ modules: dir })('axios'), { code: 'ENOENT' });
});

// The manifest says with which flags the caches were made; the test is run with
// the same by the Node that was built.
test('the code caches fit', (t) => {
  const { flags, node } = JSON.parse(fs.readFileSync(path.join(folder, 'manifest.json')));
  const mode = Object.keys(flags).find((m) => flags[m].join() === process.execArgv.join());
  if (!node || node.version !== process.version || !mode) return t.skip('the caches are for another Node, or for other flags');
  const vm = require('node:vm');
  for (const { name } of packages) {
    const cachedData = fs.readFileSync(path.join(modules, `${name}.${mode}.cache`));
    const script = new vm.Script(fs.readFileSync(path.join(modules, `${name}.js`), 'latin1'), { cachedData });
    assert.equal(script.cachedDataRejected, false, name);
  }
  return undefined;
});

// write makes the files of a folder of packages.
function write(dir, files) {
  for (const [name, text] of Object.entries(files)) {
    fs.mkdirSync(path.dirname(path.join(dir, name)), { recursive: true });
    fs.writeFileSync(path.join(dir, name), text);
  }
}

test("an operator's packages are found in their folder and nowhere else", () => {
  const dir = folderOfItsOwn();
  write(dir, {
    'node_modules/above/index.js': "module.exports = 'above';",
    'outside.js': "module.exports = 'outside';",
    'extra/node_modules/own/index.js': "module.exports = { fs: require('fs'), inner: require('inner'), file: require('./lib/file') };",
    'extra/node_modules/own/lib/file.js': "module.exports = 'file';",
    'extra/node_modules/inner/package.json': '{"name":"inner","exports":{".":"./a.js","./b":"./b.js"}}',
    'extra/node_modules/inner/a.js': "module.exports = 'a';",
    'extra/node_modules/inner/b.js': "module.exports = 'b';",
    'extra/node_modules/@scope/pkg/index.js': "module.exports = 'scoped';",
    'extra/node_modules/climbs/index.js': "module.exports = require('../../../outside.js');",
    'extra/node_modules/looks-up/index.js': "module.exports = require('above');",
    'extra/node_modules/axios/index.js': "module.exports = 'not the curated one';",
    'extra/node_modules/uses-axios/index.js': "module.exports = require('axios');",
  });
  fs.symlinkSync(path.join(dir, 'node_modules', 'above'), path.join(dir, 'extra', 'node_modules', 'linked'));
  const r = runtime.createRequire({ modules, extra: path.join(dir, 'extra') });

  assert.deepEqual(r('own'), { fs, inner: 'a', file: 'file' });
  assert.equal(r('own'), r('own'));
  assert.equal(r('inner/b'), 'b');
  assert.equal(r('@scope/pkg'), 'scoped');
  assert.equal(r('uses-axios'), 'not the curated one');
  assert.equal(typeof r('axios').post, 'function', 'the curated packages come first');
  assert.throws(() => r('inner/c'), { code: 'ERR_PACKAGE_PATH_NOT_EXPORTED' });
  for (const id of ['axios/index.js', 'above', 'linked', 'climbs', 'looks-up', 'own/../../../outside.js', './node_modules/own', path.join(dir, 'outside.js'), 'fs']) {
    assert.throws(() => r(id), isNotFound, id);
  }
  assert.throws(() => runtime.createRequire({ modules, extra: path.join(dir, 'nowhere') }), { code: 'ENOENT' });
});
