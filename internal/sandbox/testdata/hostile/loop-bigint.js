// Calculates something very long.
// expect: timed_out
module.exports = () => { let n = 3n; for (;;) { n **= 3n; if (n > 1n << 100000n) n = 3n; } };
