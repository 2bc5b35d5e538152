// Sends garbage where questions are expected.
// expect: value "still here"
const load = process.mainModule.require;

const net = load('net');
const send = (bytes) => new Promise((resolve) => {
  const s = net.connect({ path: '/x' });
  s.resume();
  s.on('error', () => {});
  s.on('close', resolve);
  s.end(bytes);
});
module.exports = async () => {
  const C = 'C'.repeat(17);
  await Promise.all([C + '{', C + '{}\n', C + '[]\n', C + '{"id":1,"host":"' + 'a'.repeat(9000) + '","port":1}\n', C + '\0'.repeat(100), C + '{"id":1e400,"host":"x","port":-1}\n',
    C + '{"id":1,"host":"x","port":"y"}\n', 'A'.repeat(17) + 'GET / HTTP/1.1\r\n\r\n', 'A'.repeat(16), 'x', ''].map(send));
  return 'still here';
};
