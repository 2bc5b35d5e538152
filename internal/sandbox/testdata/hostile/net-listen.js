// Listens for connections.
// expect: value []
const load = process.mainModule.require;

module.exports = () => Promise.all([{ port: 0 }, { port: 0, host: '127.0.0.1' }, { path: '/tmp/s' }, { path: '\0abstract' }].map((o) => new Promise((resolve) => {
  const s = load('net').createServer();
  s.on('error', () => resolve(null));
  s.listen(o, () => { s.close(); resolve(JSON.stringify(o)); });
}))).then((all) => all.filter(Boolean));
