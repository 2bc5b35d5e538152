// Returns a hundred megabytes.
// timeout: 6000
// expect: too_large | out_of_memory | thrown RangeError
module.exports = () => 'x'.repeat(100 << 20);
