// Calls the machine itself by every spelling.
// expect: value []
const load = process.mainModule.require;

const http = load('http');
const reach = (host, port) => new Promise((resolve) => {
  const r = http.request({ host, port, timeout: 2000, headers: { host: 'x' } }, () => resolve(true));
  r.on('error', () => resolve(false));
  r.end();
});
const reached = async (hosts, ports) => {
  const all = await Promise.all(hosts.flatMap((h) => ports.map(async (p) => ((await reach(h, p)) ? `${h} ${p}` : null))));
  return all.filter(Boolean);
};

const hosts = ['127.0.0.1', 'localhost', 'LOCALHOST', 'localhost.', '::1', '0:0:0:0:0:0:0:1', '0.0.0.0', '::', '::ffff:127.0.0.1', '::ffff:7f00:1', '0x7f000001', '0x7f.1', '2130706433',
  '127.1', '0177.0.0.1', '127.0.0.1.', '64:ff9b::7f00:1', '2002:7f00:1::', '①②⑦.⓪.⓪.①', '127.0.0.1%00.example.com'];
module.exports = ({ args }) => reached(hosts, [args.port]);
