// Returns something with a then that does nothing.
// expect: did_not_settle
module.exports = () => ({ then() {} });
