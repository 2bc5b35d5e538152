// Lists folders that are none of its business.
// expect: value []
const load = process.mainModule.require;
// opened gives the names of those that did not fail.
const opened = (names, use) => names.filter((n) => { try { use(n); return true; } catch { return false; } });

module.exports = () => opened(['/', '/etc', '/home', '/root', '/tmp', '/run', '/dev', '/var', '/sys', '/proc/1', '/bin'], (f) => load('fs').readdirSync(f));
