// Exports no function.
// expect: no_function
module.exports = 42;
