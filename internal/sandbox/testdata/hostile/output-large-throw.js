// Throws more than it may.
// expect: thrown Error | out_of_memory
module.exports = () => { throw new Error('x'.repeat(20 << 20)); };
