// Keeps the microtasks coming.
// expect: timed_out
module.exports = () => { const again = () => Promise.resolve().then(again); return again(); };
