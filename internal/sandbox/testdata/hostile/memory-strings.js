// Fills the heap with texts.
// timeout: 8000
// expect: out_of_memory | thrown RangeError
module.exports = () => { const all = []; for (let i = 0; ; i++) all.push(('x'.repeat(1 << 20) + i).split('').join('')); };
