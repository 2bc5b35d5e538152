// Rejects with nothing.
// expect: thrown Error
module.exports = () => Promise.reject();
