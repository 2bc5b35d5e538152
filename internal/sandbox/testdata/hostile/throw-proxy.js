// Throws an object that fails whatever is asked of it.
// expect: thrown Error
module.exports = () => { throw new Proxy({}, { get() { throw 1; }, getPrototypeOf() { throw 2; }, has() { throw 3; }, ownKeys() { throw 4; } }); };
