// Exits without a word.
// expect: exited
module.exports = () => process.reallyExit(7);
