// Recurses without end.
// expect: thrown RangeError
const deep = (n) => 1 + deep(n + 1);
module.exports = () => deep(0);
