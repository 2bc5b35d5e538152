// Keeps the microtasks coming.
// expect: timed_out | out_of_memory
module.exports = () => { const again = () => Promise.resolve().then(again); return again(); };
