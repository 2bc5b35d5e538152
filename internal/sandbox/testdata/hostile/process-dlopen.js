// Loads native code.
// expect: value []
// opened gives the names of those that did not fail.
const opened = (names, use) => names.filter((n) => { try { use(n); return true; } catch { return false; } });

module.exports = () => opened(['/lib/x86_64-linux-gnu/libm.so.6', '/lib/x86_64-linux-gnu/libc.so.6', '/bin/node', '/app/runner.js', '/proc/self/exe'], (f) => process.dlopen({ exports: {} }, f));
