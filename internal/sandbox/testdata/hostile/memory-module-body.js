// Fills the heap while it is loaded.
// expect: out_of_memory
const all = [];
for (;;) all.push(new Array(1000).fill({ a: 1 }));
