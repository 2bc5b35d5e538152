// Has the engine write its heap and reports to files.
// expect: value []
const load = process.mainModule.require;
// opened gives the names of those that did not fail.
const opened = (names, use) => names.filter((n) => { try { use(n); return true; } catch { return false; } });

module.exports = () => opened(['/tmp/a.heapsnapshot', '/app/a.heapsnapshot', './a.heapsnapshot'], (f) => {
  if (!load('v8').writeHeapSnapshot(f)) throw new Error('refused');
  load('fs').statSync(f);
}).concat(opened(['/tmp/report.json'], (f) => { process.report.writeReport(f); load('fs').statSync(f); }));
