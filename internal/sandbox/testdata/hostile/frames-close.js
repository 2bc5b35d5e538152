// Closes the stream to the parent.
// expect: exited | timed_out
const load = process.mainModule.require;
module.exports = () => { load('fs').closeSync(3); return 1; };
