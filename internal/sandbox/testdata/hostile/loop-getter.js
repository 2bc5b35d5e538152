// Loops in a getter of its result.
// expect: timed_out
module.exports = () => ({ get a() { for (;;); } });
