// Fills memory with buffers.
// expect: thrown RangeError | thrown Error | out_of_memory | exited
module.exports = () => { const all = []; for (;;) all.push(Buffer.alloc(8 << 20, 1)); };
