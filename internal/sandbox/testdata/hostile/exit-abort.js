// Aborts.
// expect: exited
module.exports = () => process.abort();
