// Reads what /proc tells of processes.
// expect: value []
const load = process.mainModule.require;
// opened gives the names of those that did not fail.
const opened = (names, use) => names.filter((n) => { try { use(n); return true; } catch { return false; } });

const names = ['environ', 'maps', 'mem', 'cmdline', 'status', 'mountinfo', 'exe', 'fd/3', 'ns/net', 'root', 'task/1/stat'];
const who = ['1', 'self', '2', String(process.ppid), 'thread-self'];
module.exports = () => opened(who.flatMap((w) => names.map((n) => `/proc/${w}/${n}`)).concat('/proc/mounts', '/proc/net/tcp', '/proc/version', '/proc/kallsyms'),
  (f) => load('fs').readFileSync(f));
