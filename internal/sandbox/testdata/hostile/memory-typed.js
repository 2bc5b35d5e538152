// Asks for an impossible array.
// timeout: 8000
// expect: thrown RangeError
module.exports = () => new Float64Array(2 ** 32 - 1).length;
