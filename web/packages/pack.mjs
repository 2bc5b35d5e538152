// Packs the npm packages of the card fields.
//
//   node pack.mjs FOLDER [NODE_MODULES]
//
// FOLDER gets a tarball for each package. The second argument is a folder with
// the tools, in place of the one that is installed here. Everything is built
// in a temporary folder: nothing is left in the checkout.

import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const here = path.dirname(fileURLToPath(import.meta.url));
const out = path.resolve(process.argv[2] ?? path.join(here, '..', '..', 'bin', 'pack'));
const tools = path.resolve(process.argv[3] ?? path.join(here, 'node_modules'));

function run(folder, command, ...args) {
  const done = spawnSync(command, args, { cwd: folder, encoding: 'utf8' });
  if (done.status !== 0) throw new Error(`${command} ${args.join(' ')}: ${done.stdout}${done.stderr}`);
}
const write = (file, text) => { fs.mkdirSync(path.dirname(file), { recursive: true }); fs.writeFileSync(file, text); };
const tsc = (folder, options, files) => {
  write(path.join(folder, 'tsconfig.json'), JSON.stringify({
    compilerOptions: { target: 'ES2022', module: 'ESNext', moduleResolution: 'Bundler', lib: ['ES2022', 'DOM', 'DOM.Iterable'], types: [], strict: true, ...options }, files,
  }));
  run(folder, process.execPath, path.join(tools, 'typescript', 'bin', 'tsc'));
  fs.rmSync(path.join(folder, 'tsconfig.json'));
};

// Types are read by every kind of module resolution when imports name files.
function nameFiles(dist) {
  for (const name of fs.readdirSync(dist).filter((n) => n.endsWith('.d.ts'))) {
    const file = path.join(dist, name);
    fs.writeFileSync(file, fs.readFileSync(file, 'utf8').replace(/(from |import\()(['"])(\.\/[\w.-]+?)\2/g, '$1$2$3.js$2'));
  }
}

function copy(from, to, ...names) {
  for (const name of names) fs.cpSync(path.join(from, name), path.join(to, name), { recursive: true });
}

const top = fs.mkdtempSync(path.join(os.tmpdir(), 'tokenkeep-pack-'));
try {
  fs.symlinkSync(tools, path.join(top, 'node_modules'));
  const elements = path.join(top, 'elements'), react = path.join(top, 'react');
  for (const [name, folder] of [['elements', elements], ['react', react]]) {
    copy(path.join(here, name), folder, 'package.json', 'README.md');
    copy(path.join(here, '..', '..'), folder, 'LICENSE');
  }

  // The loader as one module, with the types of its sources.
  copy(path.join(here, '..', 'elements'), top, 'src');
  run(top, process.execPath, path.join(tools, 'esbuild', 'bin', 'esbuild'), 'src/index.ts', '--bundle', '--format=esm', '--target=es2022', '--charset=utf8', '--legal-comments=none', `--outfile=${path.join(elements, 'dist', 'index.js')}`, '--log-level=error');
  tsc(top, { declaration: true, emitDeclarationOnly: true, rootDir: 'src', outDir: path.join(elements, 'dist') }, ['src/index.ts']);
  nameFiles(path.join(elements, 'dist'));

  // The React components, which import the loader.
  copy(path.join(here, 'react'), react, 'src');
  fs.mkdirSync(path.join(react, 'node_modules', '@tokenkeep'), { recursive: true });
  fs.symlinkSync(elements, path.join(react, 'node_modules', '@tokenkeep', 'elements'));
  tsc(react, { declaration: true, rootDir: 'src', outDir: 'dist' }, ['src/index.ts']);

  fs.mkdirSync(out, { recursive: true });
  for (const folder of [elements, react]) run(folder, 'npm', 'pack', '--silent', '--ignore-scripts', '--pack-destination', out);
} finally {
  fs.rmSync(top, { recursive: true, force: true });
}
