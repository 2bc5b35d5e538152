// Builds the card fields for the server to embed.
//
//   node build.mjs [folder]          (default: ../../internal/elements/dist)
//
// The folder gets the loader, a page for each group of kinds, and build.json
// with the hash of the sources. Nothing is done when it was built from the same
// sources. The same sources give the same bytes.

import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import fs from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const here = path.dirname(fileURLToPath(import.meta.url));
const out = path.resolve(process.argv[2] || path.join(here, '..', '..', 'internal', 'elements', 'dist'));
const read = (...names) => fs.readFileSync(path.join(here, ...names), 'utf8');

// The pages: their script, their style and the title of the document.
const pages = {
  card: { script: 'src/page-card.ts', style: 'src/field.css', title: 'Card' },
  account: { script: 'src/page-account.ts', style: 'src/field.css', title: 'Account' },
  reveal: { script: 'src/page-reveal.ts', style: 'src/reveal.css', title: 'Card' },
};

// Members of classes and options that only pages of fields have among themselves: they get short names. What goes through a message, into a request or to the
// browser is none of them; the names of messages are read as texts, which bundle() compares.
const short = ('owner touched shown edited toSiblings authorization tellsHeight showErrors started counts plain clean cut early full idempotency until ended order main ' +
  'posted heard attribute move words check table all changed result state frame root').split(' ');

function fail(message) {
  console.error(`elements: ${message}`);
  process.exit(1);
}

// key changes with everything that the result depends on.
function key() {
  const files = ['package-lock.json', 'build.mjs', 'tsconfig.json', ...fs.readdirSync(path.join(here, 'src')).sort().map((f) => `src/${f}`)];
  const h = createHash('sha256');
  for (const f of files) h.update(`${f}\0${read(f)}\0`);
  return h.digest('hex');
}

function installed() {
  try {
    return fs.readFileSync(path.join(here, 'node_modules', '.tokenkeep-lock'), 'utf8') === read('package-lock.json');
  } catch {
    return false;
  }
}

// install fetches the tools. Only a change of the lock file needs the network.
function install() {
  if (installed()) return;
  const run = spawnSync('npm', ['ci', '--ignore-scripts', '--no-audit', '--no-fund'], { cwd: here, stdio: ['ignore', 'ignore', 'inherit'] });
  if (run.status !== 0) fail('npm ci failed');
  fs.writeFileSync(path.join(here, 'node_modules', '.tokenkeep-lock'), read('package-lock.json'));
}

function checkTypes() {
  const run = spawnSync(process.execPath, [path.join(here, 'node_modules', 'typescript', 'bin', 'tsc'), '--noEmit'], { cwd: here, stdio: 'inherit' });
  if (run.status !== 0) fail('the types are wrong');
}

async function bundle() {
  const { build } = await import('esbuild');
  const options = { bundle: true, minify: true, target: 'es2022', legalComments: 'none', write: false, charset: 'utf8', absWorkingDir: here };
  const make = async (entry, more) => (await build({ ...options, entryPoints: [entry], ...more })).outputFiles[0].text.trim();
  const files = { 'elements.js': await make('src/index.ts', { format: 'iife', globalName: 'Tokenkeep' }) };
  for (const [name, page] of Object.entries(pages)) {
    const script = await make(page.script, { format: 'esm', mangleProps: new RegExp(`^(${short.join('|')})$`) }), style = await make(page.style, {});
    for (const member of short) if (script.includes(`"${member}"`)) fail(`${member} is the name of something that a message may have`);
    if (/<\/(script|style)/i.test(script + style)) fail('a script or a style would end early');
    files[`${name}.html`] = read('src/page.html').trim().replace('{{title}}', page.title).replace('{{css}}', () => style).replace('{{js}}', () => script);
  }
  return files;
}

const made = { key: key() };
try {
  if (JSON.parse(fs.readFileSync(path.join(out, 'build.json'), 'utf8')).key === made.key) process.exit(0);
} catch { /* it was not built yet */ }
install();
checkTypes();
const files = await bundle();
fs.mkdirSync(out, { recursive: true });
for (const [name, text] of Object.entries(files)) fs.writeFileSync(path.join(out, name), text);
fs.writeFileSync(path.join(out, 'build.json'), JSON.stringify(made) + '\n');
