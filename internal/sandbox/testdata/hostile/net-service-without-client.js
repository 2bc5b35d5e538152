// Calls the service although the call has no client.
// expect: value "refused"
const load = process.mainModule.require;

module.exports = () => new Promise((resolve) => {
  const s = load('net').connect({ path: '/x' });
  s.on('data', () => resolve('answered'));
  s.on('error', () => resolve('refused'));
  s.on('close', () => resolve('refused'));
  s.write('A'.repeat(17) + 'GET /tokens HTTP/1.1\r\nHost: vault\r\n\r\n');
});
