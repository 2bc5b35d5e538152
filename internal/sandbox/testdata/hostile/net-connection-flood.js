// Opens far more connections than it may.
// expect: value "done"
const load = process.mainModule.require;

const net = load('net');
module.exports = async () => {
  await Promise.all(Array.from({ length: 400 }, () => new Promise((resolve) => {
    const s = net.connect({ path: '/x' });
    s.on('error', resolve);
    s.on('connect', resolve);
  })));
  return 'done';
};
