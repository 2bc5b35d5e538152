// Takes the process object apart.
// expect: value "mine" | exited
process.removeAllListeners();
process.on = process.emit = () => {};
for (const k of ['exit', 'binding', 'nextTick', 'stdout', 'stderr', 'env']) { try { Object.defineProperty(process, k, { value: undefined }); } catch { /* kept */ } }
module.exports = () => 'mine';
