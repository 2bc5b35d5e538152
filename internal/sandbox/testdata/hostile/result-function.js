// Returns a function.
// expect: bad_result
module.exports = () => () => {};
