// Floods the console.
// expect: timed_out
module.exports = () => { for (;;) console.log('x'.repeat(1000)); };
