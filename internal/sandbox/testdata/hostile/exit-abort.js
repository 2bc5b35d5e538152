// Aborts.
// timeout: 3000
// expect: exited
module.exports = () => process.abort();
