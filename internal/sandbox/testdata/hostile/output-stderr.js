// Floods standard error.
// expect: timed_out
const load = process.mainModule.require;
module.exports = () => { const b = Buffer.alloc(65536, 'x'); for (;;) load('fs').writeSync(2, b); };
