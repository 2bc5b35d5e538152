// Returns a promise that nobody settles.
// expect: did_not_settle
module.exports = () => new Promise(() => {});
