// Exports null.
// expect: no_function
module.exports = null;
