// Throws while its result is written.
// expect: bad_result
module.exports = () => ({ toJSON() { throw new Error('x'); } });
