// Asks for an impossible array.
// expect: thrown RangeError
module.exports = () => new Float64Array(2 ** 32 - 1).length;
