'use strict';

// Standard input says where the server is and has keys for each client.
const { readFileSync } = require('node:fs');
const { runAll } = require('./check');

const world = JSON.parse(readFileSync(0, 'utf8'));
require('./node-sdk')('node-sdk-5', world);
require('./node-sdk')('node-sdk-2', world);
require('./basis-theory-js')('basis-theory-js-4', world);
runAll();
