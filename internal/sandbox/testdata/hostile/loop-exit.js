// Loops while it exits.
// expect: timed_out
process.on('exit', () => { for (;;); });
module.exports = () => process.exit(0);
