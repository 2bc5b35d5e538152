// Fills the heap with texts.
// expect: out_of_memory | thrown RangeError
module.exports = () => { const all = []; for (;;) all.push(Buffer.alloc(1 << 16, 'x').toString('latin1') + all.length); };
