// Fills the heap with a map.
// expect: out_of_memory | thrown RangeError
module.exports = () => { const m = new Map(); for (let i = 0; ; i++) m.set(i, { i }); };
