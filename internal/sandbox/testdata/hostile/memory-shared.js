// Fills memory with shared buffers.
// expect: thrown RangeError | out_of_memory | exited
module.exports = () => { const all = []; for (;;) { const b = new SharedArrayBuffer(8 << 20); new Uint8Array(b).fill(1); all.push(b); } };
