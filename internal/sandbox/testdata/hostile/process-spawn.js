// Starts programs by every function for it.
// expect: value []
const load = process.mainModule.require;
// opened gives the names of those that did not fail.
const opened = (names, use) => names.filter((n) => { try { use(n); return true; } catch { return false; } });

const c = load('child_process');
const ways = {
  execSync: () => c.execSync('id'), execFileSync: () => c.execFileSync('/bin/node', ['-v']),
  spawnSync: () => { const { error } = c.spawnSync('/bin/sh', ['-c', 'id']); if (error) throw error; },
  self: () => { const { error } = c.spawnSync(process.execPath, ['-e', '1']); if (error) throw error; },
};
module.exports = () => opened(Object.keys(ways), (w) => ways[w]());
