// Reads a file of the server by every way there, walks and /proc included.
// expect: value []
const load = process.mainModule.require;
// opened gives the names of those that did not fail.
const opened = (names, use) => names.filter((n) => { try { use(n); return true; } catch { return false; } });

module.exports = ({ args }) => opened([args.file, '/../..' + args.file, '/app/../../../..' + args.file, '/proc/1/root' + args.file, '/proc/self/root' + args.file,
  '/proc/self/cwd/..' + args.file, '/proc/thread-self/root' + args.file, '/dev/fd/3/..' + args.file], (f) => load('fs').readFileSync(f));
