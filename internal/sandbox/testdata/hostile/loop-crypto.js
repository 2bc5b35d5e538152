// Derives a key for an hour.
// expect: timed_out
const load = process.mainModule.require;
module.exports = () => load('crypto').pbkdf2Sync('a', 'b', 2 ** 31 - 1, 64, 'sha512').length;
