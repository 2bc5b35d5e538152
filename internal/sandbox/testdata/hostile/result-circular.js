// Returns what contains itself.
// expect: bad_result
module.exports = () => { const a = {}; a.a = a; return a; };
