// Sends datagrams.
// expect: value []
const load = process.mainModule.require;

module.exports = ({ args }) => Promise.all(['udp4', 'udp6'].map((kind) => new Promise((resolve) => {
  try {
    const s = load('dgram').createSocket(kind);
    s.on('error', () => resolve(null));
    s.send('x', args.port, kind === 'udp4' ? '127.0.0.1' : '::1', (e) => resolve(e ? null : kind));
  } catch { resolve(null); }
}))).then((all) => all.filter(Boolean));
