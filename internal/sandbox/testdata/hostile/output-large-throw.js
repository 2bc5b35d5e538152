// Throws more than it may.
// timeout: 6000
// expect: thrown Error
module.exports = () => { throw new Error('x'.repeat(20 << 20)); };
