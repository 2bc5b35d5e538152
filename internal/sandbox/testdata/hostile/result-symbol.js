// Returns a symbol.
// expect: bad_result
module.exports = () => Symbol('x');
