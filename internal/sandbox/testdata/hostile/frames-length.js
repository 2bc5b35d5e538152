// Announces a frame of four gigabytes.
// expect: broke
const load = process.mainModule.require;
module.exports = () => { load('fs').writeSync(3, Buffer.from([255, 255, 255, 255, 2, 0, 0, 0, 0, 0, 0, 0, 0])); for (;;); };
