// Returns more than it may.
// timeout: 3000
// expect: too_large
module.exports = () => 'x'.repeat(6 << 20);
