// Exits.
// expect: exited
module.exports = () => process.exit(0);
