'use strict';

const fs = require('fs');
const vm = require('vm');

// cacheMode names the code caches that this process can use: V8 takes a cache
// only under the flags that it was made with.
const cacheMode = process.execArgv.includes('--jitless') ? 'jitless' : 'jit';

const cacheFile = (folder, name) => `${folder}/${name}.${cacheMode}.cache`;

// compileBundle compiles the one file that holds a package, with its code cache
// if there is one. A cache that does not fit is ignored by V8; it costs time
// and changes nothing. The file is one function, written in ASCII alone, so that
// its text is taken over as it is.
function compileBundle(folder, name, cachedData) {
  const filename = `${folder}/${name}.js`;
  return new vm.Script(fs.readFileSync(filename, 'latin1'), { filename, cachedData });
}

// runBundle returns what the file exports: functions by the id that is asked for,
// each of which returns a module. The packages in there were chosen by us and
// reach all of Node's modules.
function runBundle(script, folder, name) {
  const module = { exports: {} };
  script.runInThisContext().call(module.exports, module.exports, require, module, `${folder}/${name}.js`, folder);
  return module.exports;
}

function loadBundle(folder, name) {
  let cachedData;
  try {
    cachedData = fs.readFileSync(cacheFile(folder, name));
  } catch {
    cachedData = undefined;
  }
  return runBundle(compileBundle(folder, name, cachedData), folder, name);
}

module.exports = { cacheFile, compileBundle, loadBundle, runBundle };
