// Loops while its result is written.
// expect: timed_out
module.exports = () => ({ toJSON() { for (;;); } });
