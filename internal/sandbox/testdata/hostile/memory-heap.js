// Fills the heap with objects.
// expect: out_of_memory
module.exports = () => { const all = []; for (;;) all.push(new Array(1000).fill({ a: 1 })); };
