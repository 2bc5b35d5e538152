// Keeps the ticks coming.
// expect: timed_out
module.exports = () => new Promise(() => { const again = () => process.nextTick(again); again(); });
