// Floods the parent with zeros.
// expect: broke
const load = process.mainModule.require;
module.exports = () => { const b = Buffer.alloc(65536); for (;;) load('fs').writeSync(3, b); };
