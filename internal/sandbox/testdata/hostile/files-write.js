// Writes, makes, renames, links and removes wherever it can.
// expect: value []
const load = process.mainModule.require;
// opened gives the names of those that did not fail.
const opened = (names, use) => names.filter((n) => { try { use(n); return true; } catch { return false; } });

const fs = load('fs');
const ways = {
  write: (f) => fs.writeFileSync(f, 'x'), append: (f) => fs.appendFileSync(f, 'x'), chmod: (f) => fs.chmodSync(f, 0o777), chown: (f) => fs.chownSync(f, 0, 0),
  unlink: (f) => fs.unlinkSync(f), rename: (f) => fs.renameSync(f, f + '2'), truncate: (f) => fs.truncateSync(f), mkdir: (f) => fs.mkdirSync(f + '3'),
  symlink: (f) => fs.symlinkSync('/etc/passwd', f + '4'), link: (f) => fs.linkSync(f, f + '5'), utimes: (f) => fs.utimesSync(f, 1, 1), rm: (f) => { fs.rmSync(f, { recursive: true }); if (fs.existsSync(f)) throw new Error('still there'); },
};
module.exports = () => ['/app/runner.js', '/app/runtime.js', '/bin/node', '/tmp/x', '/run/x', '/x', '/dev/shm/x', '/proc/self/stat'].flatMap((f) =>
  opened(Object.keys(ways), (w) => ways[w](f)).map((w) => w + ' ' + f));
