// Builds the console for the server to embed.
//
//   node build.mjs [folder]          (default: ../../internal/console/dist)
//
// The folder gets the page, its files with their hashes in their names, and
// build.json with the hash of the sources. Nothing is done when it was built
// from the same sources. The same sources give the same bytes.

import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import fs from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const here = path.dirname(fileURLToPath(import.meta.url));
const out = path.resolve(process.argv[2] || path.join(here, '..', '..', 'internal', 'console', 'dist'));
const schema = path.join(here, '..', '..', 'client', 'typescript', 'src', 'schema.ts'); // the types of api/openapi.yaml
const read = (...names) => fs.readFileSync(path.join(here, ...names), 'utf8');

function fail(message) {
  console.error(`console: ${message}`);
  process.exit(1);
}

/** key changes with everything that the result depends on. */
function key() {
  const files = ['package-lock.json', 'build.mjs', 'tsconfig.json', 'vite.config.ts', 'index.html'];
  for (const folder of ['src']) {
    files.push(...fs.readdirSync(path.join(here, folder), { recursive: true }).map((f) => path.join(folder, f)).filter((f) => fs.statSync(path.join(here, f)).isFile()).sort());
  }
  const h = createHash('sha256');
  for (const f of files) h.update(`${f}\0${read(f)}\0`);
  return h.update(fs.readFileSync(schema)).digest('hex');
}

function installed() {
  try {
    return fs.readFileSync(path.join(here, 'node_modules', '.tokenkeep-lock'), 'utf8') === read('package-lock.json');
  } catch {
    return false;
  }
}

/** install fetches the tools. Only a change of the lock file needs the network. */
function install() {
  if (installed()) return;
  const run = spawnSync('npm', ['ci', '--ignore-scripts', '--no-audit', '--no-fund'], { cwd: here, stdio: ['ignore', 'ignore', 'inherit'] });
  if (run.status !== 0) fail('npm ci failed');
  fs.writeFileSync(path.join(here, 'node_modules', '.tokenkeep-lock'), read('package-lock.json'));
}

/** run starts a tool of node_modules with this Node.js. */
function run(tool, ...args) {
  const done = spawnSync(process.execPath, [path.join(here, 'node_modules', ...tool), ...args], { cwd: here, stdio: ['ignore', 'ignore', 'inherit'] });
  if (done.status !== 0) {
    spawnSync(process.execPath, [path.join(here, 'node_modules', ...tool), ...args], { cwd: here, stdio: 'inherit' });
    fail(`${tool[0]} failed`);
  }
}

const made = { key: key() };
try {
  if (JSON.parse(fs.readFileSync(path.join(out, 'build.json'), 'utf8')).key === made.key) process.exit(0);
} catch { /* it was not built yet */ }
install();
run(['typescript', 'bin', 'tsc'], '--noEmit');
const fresh = fs.mkdtempSync(path.join(here, 'node_modules', '.console-'));
run(['vite', 'bin', 'vite.js'], 'build', '--outDir', fresh, '--emptyOutDir', '--logLevel', 'error');
fs.mkdirSync(out, { recursive: true });
for (const name of fs.readdirSync(out)) if (name !== 'README.md') fs.rmSync(path.join(out, name), { recursive: true });
fs.cpSync(fresh, out, { recursive: true });
fs.rmSync(fresh, { recursive: true });
fs.writeFileSync(path.join(out, 'build.json'), JSON.stringify(made) + '\n');
