// Loops.
// expect: timed_out
module.exports = () => { for (;;); };
