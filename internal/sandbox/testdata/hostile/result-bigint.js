// Returns a BigInt.
// expect: bad_result
module.exports = () => ({ n: 10n });
