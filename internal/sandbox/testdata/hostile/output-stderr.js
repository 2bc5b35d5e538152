// Floods standard error.
// expect: thrown Error
const load = process.mainModule.require;
module.exports = () => { const b = Buffer.alloc(65536, 'x'); for (;;) load('fs').writeSync(2, b); };
