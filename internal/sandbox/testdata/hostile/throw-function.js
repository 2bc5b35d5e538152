// Throws a function.
// expect: thrown *
module.exports = () => { throw function thrown() {}; };
