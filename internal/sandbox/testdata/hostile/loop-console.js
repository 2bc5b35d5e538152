// Loops in what it prints.
// expect: timed_out
module.exports = () => console.log({ [Symbol.for('nodejs.util.inspect.custom')]() { for (;;); } });
