'use strict';

// Runs named checks one after another and says of each on standard output
// whether it held: one line of JSON for each.
const assert = require('node:assert/strict');

const checks = [];

// suite returns the function that names checks of one client.
const suite = (client) => (name, run) => checks.push({ name: `${client}/${name}`, run });

// refused returns the error with which a call ends.
async function refused(call) {
  try {
    await call();
  } catch (e) {
    return e;
  }
  return assert.fail('the call was not refused');
}

// collect reads a list to its end, through the client's own iterator.
async function collect(pages, most = 1000) {
  const all = [];
  for await (const item of await pages) {
    all.push(item);
    assert.ok(all.length <= most, 'the iterator does not end');
  }
  return all;
}

// eventually asks until there is an answer, for what runs in the background, or
// until the test that started this process is gone.
async function eventually(ask) {
  for (const parent = process.ppid; ; ) {
    try {
      return await ask();
    } catch (e) {
      if (process.ppid !== parent) throw e;
      await new Promise((done) => setTimeout(done, 50));
    }
  }
}

async function runAll() {
  for (const { name, run } of checks) {
    let error;
    try {
      await run();
    } catch (e) {
      error = `${e.stack}${e.body || e.data ? `\n${JSON.stringify(e.body || e.data)}` : ''}`;
    }
    process.stdout.write(`${JSON.stringify({ name, error })}\n`);
  }
  process.stdout.write(`${JSON.stringify({ done: checks.length })}\n`);
}

module.exports = { suite, refused, collect, eventually, runAll };
