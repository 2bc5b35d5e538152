// Reserves memory without touching it.
// expect: thrown RangeError | thrown Error | out_of_memory | exited
module.exports = () => { const all = []; for (;;) all.push(new ArrayBuffer(64 << 20)); };
