// Guesses at connections that were dialled for others.
// expect: value 0
const load = process.mainModule.require;

const net = load('net');
module.exports = async () => {
  let got = 0;
  for (let i = 0; i < 200; i++) {
    await new Promise((resolve) => {
      const s = net.connect({ path: '/x' });
      s.on('data', () => { got++; });
      s.on('error', () => {});
      s.on('close', resolve);
      s.write('T' + String(i).padStart(16, '0'));
    });
  }
  return got;
};
