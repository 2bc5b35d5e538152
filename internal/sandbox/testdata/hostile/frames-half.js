// Sends half a frame and waits.
// expect: timed_out
const load = process.mainModule.require;
module.exports = () => { load('fs').writeSync(3, Buffer.from([5, 0])); for (;;); };
