// Awaits forever.
// expect: timed_out
module.exports = async () => { for (;;) await null; };
