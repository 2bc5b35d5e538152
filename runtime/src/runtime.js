'use strict';

// What the runner hands to the code of tenants, loaded once in a blank sandbox,
// before any of that code.
//
// It promises that nothing here throws at the runner because of what a tenant
// did, and that no stack and no path leaves with an error. It is no security
// boundary: code that runs in this process may change everything in it. The
// kernel's sandbox is the boundary, and what comes out of it is judged outside.

const { createClient } = require('./client');
const { describeError } = require('./describe');
const { classes } = require('./errors');
const { headersObject } = require('./headers');
const { jsonText } = require('./json');
const { createRequire } = require('./require');

module.exports = { createClient, createRequire, describeError, errors: classes, headersObject, jsonText };
