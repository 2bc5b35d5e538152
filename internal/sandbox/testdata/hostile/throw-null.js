// Throws nothing.
// expect: thrown Error
module.exports = () => { throw null; };
