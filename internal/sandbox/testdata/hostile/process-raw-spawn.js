// Starts a program by the bare bindings.
// expect: value [] | exited
// opened gives the names of those that did not fail.
const opened = (names, use) => names.filter((n) => { try { use(n); return true; } catch { return false; } });

const ways = {
  spawn_sync: () => { const r = process.binding('spawn_sync').spawn({ file: '/bin/node', args: ['node', '-v'], stdio: [] }); if (r.error) throw new Error(); },
  process_wrap: () => { const { Process } = process.binding('process_wrap'); if (new Process().spawn({ file: '/bin/node', args: ['node'], stdio: [] }) !== 0) throw new Error(); },
};
module.exports = () => opened(Object.keys(ways), (w) => ways[w]());
