// Exports something that fails whatever is asked of it.
// expect: no_function | thrown *
module.exports = new Proxy({}, { get() { throw new Error("x"); } });
