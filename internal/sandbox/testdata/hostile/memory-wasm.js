// Grows the memory of WebAssembly.
// expect: thrown RangeError | thrown Error | thrown ReferenceError | out_of_memory | exited
module.exports = () => { const m = new WebAssembly.Memory({ initial: 1, maximum: 65536 }); for (;;) { m.grow(64); new Uint8Array(m.buffer).fill(1); } };
