// Throws a symbol.
// expect: thrown Error
module.exports = () => { throw Symbol('x'); };
