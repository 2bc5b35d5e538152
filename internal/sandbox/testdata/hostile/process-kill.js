// Signals everyone.
// expect: value []
// opened gives the names of those that did not fail.
const opened = (names, use) => names.filter((n) => { try { use(n); return true; } catch { return false; } });

module.exports = () => opened([-1, 0, 2, 3, 100, -2, process.ppid || 4], (pid) => process.kill(pid, 'SIGKILL'));
