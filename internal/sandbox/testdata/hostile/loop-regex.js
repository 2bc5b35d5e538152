// Matches for longer than the sun will last.
// expect: timed_out
module.exports = () => /^(a+)+$/.test('a'.repeat(60) + 'b');
