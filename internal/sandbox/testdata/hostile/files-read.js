// Reads well-known files of the machine.
// expect: value []
const load = process.mainModule.require;
// opened gives the names of those that did not fail.
const opened = (names, use) => names.filter((n) => { try { use(n); return true; } catch { return false; } });

const files = ['/etc/passwd', '/etc/shadow', '/etc/hosts', '/etc/resolv.conf', '/root/.bash_history', '/sys/kernel/notes', '/dev/mem', '/dev/kmsg', '/dev/random'];
module.exports = () => opened(files, (f) => load('fs').readFileSync(f));
