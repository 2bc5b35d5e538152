'use strict';

// The runtime under test: the built one, in the folder that the environment names.
const path = require('node:path');

const folder = path.resolve(process.env.TOKENKEEP_RUNTIME || path.join(__dirname, '..', '..', 'bin', 'runtime'));

module.exports = { folder, modules: path.join(folder, 'app', 'modules'), runtime: require(path.join(folder, 'app', 'runtime.js')) };
