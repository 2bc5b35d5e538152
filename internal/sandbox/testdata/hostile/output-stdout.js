// Floods standard output.
// expect: timed_out
const load = process.mainModule.require;
module.exports = () => { const b = Buffer.alloc(65536, 'x'); for (;;) load('fs').writeSync(1, b); };
