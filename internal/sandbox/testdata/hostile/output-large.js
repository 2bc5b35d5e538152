// Returns more than it may.
// expect: too_large
module.exports = () => 'x'.repeat(6 << 20);
