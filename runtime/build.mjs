// Builds the runtime: Node 16, the entry for the runner, and the curated packages
// as one file each with code caches beside it.
//
//   node build.mjs [folder]          (default: ../bin/runtime)
//
// Nothing is done, and no network is needed, when the folder was made from the
// same sources. The folder is replaced whole or not at all.

import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import fs from 'node:fs';
import path from 'node:path';
import tls from 'node:tls';
import { fileURLToPath } from 'node:url';

import packages from './packages.js';

const here = path.dirname(fileURLToPath(import.meta.url));
const out = path.resolve(process.argv[2] || path.join(here, '..', 'bin', 'runtime'));
const manifestFile = 'manifest.json';
const platform = `${process.platform}-${process.arch}`;

// What bin/node must be, by platform. The lock file pins the archive; this pins
// the program.
const nodeHashes = {
  'linux-x64': '8440cffda5a21bf7cfda43d2c396f79777585a4c5e03ed2801fe226953a7aa11',
  'linux-arm64': 'd09c34f17626ab66c8906508a831ea91dab4e5982b20c4d7a567ceaed42121bb',
};

// The flags that the sandbox starts Node with, in its two modes. A code cache is
// good for exactly these, the size of the heap included.
const flags = {
  jit: ['--no-addons', '--no-warnings', '--max-old-space-size=96'],
  jitless: ['--no-addons', '--no-warnings', '--max-old-space-size=96', '--jitless'],
};

const hash = (data) => createHash('sha256').update(data).digest('hex');
const read = (...names) => fs.readFileSync(path.join(here, ...names));

function fail(message) {
  console.error(`runtime: ${message}`);
  process.exit(1);
}

// key changes with everything that the result depends on but the certificates.
function key() {
  const files = ['package.json', 'package-lock.json', 'packages.js', 'build.mjs', ...fs.readdirSync(path.join(here, 'src')).sort().map((f) => `src/${f}`)];
  return hash([platform, ...files.map((f) => `${f} ${hash(read(f))}`)].join('\n'));
}

function install() {
  const mark = path.join(here, 'node_modules', '.installed');
  const want = hash(Buffer.concat([read('package-lock.json'), Buffer.from(platform)]));
  if (fs.existsSync(mark) && fs.readFileSync(mark, 'utf8') === want) return;
  const npm = spawnSync('npm', ['ci', '--ignore-scripts', '--include=dev', '--include=optional', '--no-audit', '--no-fund'], {
    cwd: here, stdio: ['ignore', 'inherit', 'inherit'],
  });
  if (npm.error || npm.status !== 0) fail('npm could not install what package-lock.json names');
  fs.writeFileSync(mark, want);
}

// copyNode checks Node and puts it in place. It returns null where Node 16 cannot
// be had or does not run: then there are no caches, and an operator names
// another Node.
function copyNode(folder) {
  const want = nodeHashes[platform];
  if (!want) {
    console.error(`runtime: there is no Node 16 for ${platform}: bin/node is left out`);
    return null;
  }
  const from = path.join(here, 'node_modules', `node-${platform}`, 'bin', 'node');
  const got = hash(fs.readFileSync(from));
  if (got !== want) fail(`bin/node has the hash ${got}, and not ${want}`);
  const to = path.join(folder, 'bin', 'node');
  fs.mkdirSync(path.dirname(to), { recursive: true });
  fs.copyFileSync(from, to, fs.constants.COPYFILE_FICLONE);
  fs.chmodSync(to, 0o755);
  const version = spawnSync(to, ['--version'], { encoding: 'utf8' });
  if (version.status !== 0) {
    console.error('runtime: Node 16 does not run on this system (it needs glibc 2.17 or newer): bin/node is left out');
    fs.rmSync(to);
    return null;
  }
  return { version: version.stdout.trim(), platform, sha256: got };
}

// ids lists what a package answers to, with the JavaScript that gives it.
async function ids({ name, paths = [], files = [], members }) {
  const list = { [name]: `require(${JSON.stringify(name)})` };
  for (const pattern of files) {
    const folder = path.join(name, path.dirname(pattern));
    for (const file of fs.readdirSync(path.join(here, 'node_modules', folder)).sort()) {
      if (!file.endsWith('.js')) continue;
      const id = path.join(folder, file.slice(0, -'.js'.length));
      list[id] = `require(${JSON.stringify(id)})`;
    }
  }
  if (members) {
    const { default: all } = await import(name);
    for (const member of Object.keys(all).sort()) list[`${name}/${member}`] = `require(${JSON.stringify(name)})[${JSON.stringify(member)}]`;
  }
  for (const p of paths) list[`${name}/${p}`] = `require(${JSON.stringify(`${name}/${p}`)})`;
  return list;
}

// jsonpathFromFiles lets jsonpath be bundled: when loaded, it reads the source
// of its parser from a file and lets identifiers begin with '@'. Here the same
// is done while building. The other files that it would read are for making
// its grammar anew.
const jsonpathFromFiles = {
  name: 'jsonpath',
  setup(build) {
    build.onLoad({ filter: /jsonpath[\\/]lib[\\/]aesprim\.js$/ }, async (file) => {
      const parser = await build.resolve('esprima', { kind: 'require-call', resolveDir: path.dirname(file.path) });
      const source = fs.readFileSync(parser.path, 'utf8');
      const start = /function isIdentifierStart\(ch\) \{\s+return /;
      if (!start.test(source)) fail('jsonpath: its parser is not the one that is known here');
      return { contents: source.replace(start, '$&(ch === 0x40) || ') };
    });
    build.onResolve({ filter: /^fs$/ }, ({ importer }) => (/[\\/]jsonpath[\\/]/.test(importer) ? { path: 'fs', namespace: 'none' } : undefined));
    build.onLoad({ filter: /.*/, namespace: 'none' }, () => ({ contents: 'module.exports = {};' }));
  },
};

// toASCII escapes the characters that esbuild leaves in regular expressions, so
// that a bundle can be read as bytes.
function toASCII(file) {
  const text = fs.readFileSync(file, 'utf8');
  if (/\\[^\0-\x7f]/.test(text)) fail(`${path.basename(file)} has a backslash before a character beyond ASCII`);
  fs.writeFileSync(file, text.replace(/[^\0-\x7f]/g, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, '0')}`));
}

async function bundle(app) {
  const { build } = await import('esbuild');
  const common = { bundle: true, platform: 'node', target: 'node16', format: 'cjs', logLevel: 'warning', legalComments: 'none', charset: 'ascii', logOverride: { 'require-resolve-not-external': 'silent' }, metafile: true, absWorkingDir: here };
  const inputs = new Set();
  const run = async (options) => Object.keys((await build({ ...common, ...options })).metafile.inputs).forEach((f) => inputs.add(f));

  for (const name of ['runtime', 'cache']) await run({ entryPoints: [`src/${name}.js`], outfile: path.join(app, `${name}.js`) });
  for (const row of packages) {
    const outfile = path.join(app, 'modules', `${row.name}.js`);
    const lines = Object.entries(await ids(row)).map(([id, code]) => `  ${JSON.stringify(id)}: () => ${code},\n`);
    await run({
      stdin: { contents: `module.exports = {\n${lines.join('')}};\n`, resolveDir: here, sourcefile: `${row.name}.js` },
      outfile,
      plugins: [jsonpathFromFiles],
      minifySyntax: true,
      minifyWhitespace: true,
      banner: { js: '(function (exports, require, module, __filename, __dirname) {' },
      footer: { js: '})' },
    });
    toASCII(outfile);
  }
  return inputs;
}

// licenses gathers the licences of Node and of every package that went in.
function licenses(inputs) {
  const folders = new Set([`node_modules/node-${platform}`]);
  for (const file of inputs) {
    const found = /^(.*node_modules\/(?:@[^/]+\/)?[^/]+)\//.exec(file);
    if (found) folders.add(found[1]);
  }
  let text = '';
  for (const folder of [...folders].sort()) {
    if (!fs.existsSync(path.join(here, folder))) continue;
    const { name, version, license } = JSON.parse(read(folder, 'package.json'));
    const file = fs.readdirSync(path.join(here, folder)).find((f) => /^(licen[cs]e|copying)/i.test(f));
    text += `${name} ${version} (${license || 'see below'})\n\n${file ? read(folder, file) : ''}\n\n`;
  }
  return text;
}

// certificates returns the roots that the system trusts today: those in Node 16
// are of 2023. Without any, the roots of the Node that builds.
function certificates() {
  const files = [process.env.SSL_CERT_FILE, '/etc/ssl/certs/ca-certificates.crt', '/etc/pki/tls/certs/ca-bundle.crt', '/etc/ssl/cert.pem'];
  const file = files.find((f) => f && fs.existsSync(f));
  return file ? fs.readFileSync(file) : Buffer.from(`${tls.rootCertificates.join('\n')}\n`);
}

function refreshCertificates(folder) {
  const file = path.join(folder, 'app', 'ca.pem');
  const pem = certificates();
  if (!fs.existsSync(file) || !fs.readFileSync(file).equals(pem)) fs.writeFileSync(file, pem);
}

// isCurrent tells whether the folder holds what these sources make.
function isCurrent(want) {
  try {
    const manifest = JSON.parse(fs.readFileSync(path.join(out, manifestFile)));
    return manifest.key === want && Object.keys(manifest.files).every((f) => fs.existsSync(path.join(out, f)));
  } catch {
    return false;
  }
}

const filesOf = (folder, base = '') => fs.readdirSync(path.join(folder, base), { withFileTypes: true })
  .flatMap((e) => (e.isDirectory() ? filesOf(folder, path.posix.join(base, e.name)) : path.posix.join(base, e.name))).sort();

async function main() {
  const want = key();
  if (isCurrent(want)) {
    refreshCertificates(out);
    return;
  }
  install();
  const made = `${out}.${process.pid}`;
  process.on('exit', () => fs.rmSync(made, { recursive: true, force: true }));
  const app = path.join(made, 'app');
  fs.mkdirSync(path.join(app, 'modules'), { recursive: true });

  const node = copyNode(made);
  fs.writeFileSync(path.join(made, 'LICENSES.txt'), licenses(await bundle(app)));
  fs.writeFileSync(path.join(app, 'openssl.cnf'), '');
  if (node) {
    for (const mode of Object.keys(flags)) {
      const run = spawnSync(path.join(made, 'bin', 'node'), [...flags[mode], path.join(app, 'cache.js')], { encoding: 'utf8' });
      if (run.status !== 0) fail(`no code cache could be made with ${flags[mode].join(' ')}\n${run.stderr}`);
    }
  }
  const files = Object.fromEntries(filesOf(made).map((f) => [f, hash(fs.readFileSync(path.join(made, f)))]));
  refreshCertificates(made);
  const versions = Object.fromEntries(packages.map(({ name }) => [name, JSON.parse(read('node_modules', name, 'package.json')).version]));
  fs.writeFileSync(path.join(made, manifestFile), `${JSON.stringify({ key: want, node, flags, packages: versions, files }, null, 2)}\n`);
  fs.rmSync(out, { recursive: true, force: true });
  fs.renameSync(made, out);
}

await main();
