// Inflates what inflates to gigabytes.
// expect: thrown RangeError | thrown Error | out_of_memory | exited
const load = process.mainModule.require;

const zlib = load('zlib');
module.exports = () => {
  const small = zlib.gzipSync(Buffer.alloc(16 << 20));
  const all = [];
  for (;;) all.push(zlib.gunzipSync(small));
};
