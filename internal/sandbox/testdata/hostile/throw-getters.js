// Throws an error whose members throw.
// expect: thrown Error
module.exports = () => { throw Object.defineProperties({}, { name: { get() { throw 1; } }, message: { get() { throw 2; } }, status: { get() { throw 3; } }, stack: { get() { throw 4; } } }); };
