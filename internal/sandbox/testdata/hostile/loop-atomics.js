// Waits for a value that nobody changes.
// expect: timed_out
module.exports = () => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);
