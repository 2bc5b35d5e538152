// Turns its result into nothing.
// expect: bad_result
module.exports = () => ({ toJSON() {} });
