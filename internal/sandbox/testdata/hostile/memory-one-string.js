// Doubles one text.
// expect: thrown RangeError | out_of_memory
module.exports = () => { let s = 'xx'; for (;;) s += s; };
