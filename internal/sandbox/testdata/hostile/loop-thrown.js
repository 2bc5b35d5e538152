// Loops in what it throws.
// expect: timed_out
module.exports = () => { throw { get message() { for (;;); }, toString() { for (;;); } }; };
