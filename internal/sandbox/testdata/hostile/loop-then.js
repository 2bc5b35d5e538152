// Loops in the then of what it returns.
// expect: timed_out
module.exports = () => ({ then() { for (;;); } });
