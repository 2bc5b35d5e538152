// Keeps the turns coming.
// expect: timed_out
module.exports = () => new Promise(() => { const again = () => setImmediate(again); again(); });
