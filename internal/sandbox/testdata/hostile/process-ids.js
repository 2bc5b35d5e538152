// Changes users, groups, priority and folder.
// expect: value []
const load = process.mainModule.require;
// opened gives the names of those that did not fail.
const opened = (names, use) => names.filter((n) => { try { use(n); return true; } catch { return false; } });

const ways = {
  setuid: () => process.setuid(1000), seteuid: () => process.seteuid(1000), setgid: () => process.setgid(1000), setgroups: () => process.setgroups([1]),
  initgroups: () => process.initgroups('root', 0), priority: () => load('os').setPriority(-10), lower: () => load('os').setPriority(10), chdir: () => process.chdir('/app'),
};
module.exports = () => opened(Object.keys(ways), (w) => ways[w]());
