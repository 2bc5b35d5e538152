// Returns a hundred megabytes.
// expect: too_large | out_of_memory | thrown RangeError
module.exports = () => 'x'.repeat(100 << 20);
