// Calls a destination by tls, http2 and net, past the agents.
// expect: value []
const load = process.mainModule.require;

const tries = (args) => ({
  net: () => load('net').connect(args.port, '127.0.0.1'),
  tls: () => load('tls').connect(args.port, '127.0.0.1', { rejectUnauthorized: false }),
  http2: () => load('http2').connect('https://127.0.0.1:' + args.port, { rejectUnauthorized: false }),
  options: () => load('net').connect({ host: '127.0.0.1', port: args.port, lookup: (h, o, cb) => cb(null, '127.0.0.1', 4) }),
});
module.exports = async ({ args }) => {
  const list = Object.entries(tries(args)).map(([name, open]) => new Promise((resolve) => {
    const s = open();
    s.on('connect', () => resolve(name));
    s.on('secureConnect', () => resolve(name));
    s.on('error', () => resolve(null));
  }));
  return (await Promise.all(list)).filter(Boolean);
};
