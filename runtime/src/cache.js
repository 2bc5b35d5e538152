'use strict';

// Makes the code caches of the curated packages beside them, for the Node and the
// flags that this file is run with:
//
//   node <flags> cache.js
//
// A package is loaded first, so that the cache holds the functions that loading
// it runs.

const fs = require('fs');
const path = require('path');

const packages = require('../packages');
const { cacheFile, compileBundle, runBundle } = require('./bundle');

const modules = path.join(__dirname, 'modules');
for (const { name } of packages) {
  const script = compileBundle(modules, name);
  runBundle(script, modules, name)[name]();
  fs.writeFileSync(cacheFile(modules, name), script.createCachedData());
}
