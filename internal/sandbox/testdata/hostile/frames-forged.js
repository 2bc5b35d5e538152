// Answers by itself, with a guess at the nonce.
// expect: broke
const load = process.mainModule.require;

module.exports = () => {
  const text = '{"raw":"forged"}';
  const b = Buffer.alloc(13 + text.length);
  b.writeUInt32LE(9 + text.length, 0);
  b[4] = 2;
  b.write(text, 13);
  load('fs').writeSync(3, b);
  for (;;);
};
