// Doubles one text.
// timeout: 8000
// expect: thrown RangeError | out_of_memory
module.exports = () => { let s = 'xx'; for (;;) s += s; };
