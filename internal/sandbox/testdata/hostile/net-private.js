// Calls private and odd networks.
// expect: value []
const load = process.mainModule.require;

const http = load('http');
const reach = (host, port) => new Promise((resolve) => {
  const r = http.request({ host, port, timeout: 2000 }, () => resolve(true));
  r.on('error', () => resolve(false));
  r.end();
});
const reached = async (hosts, ports) => {
  const all = await Promise.all(hosts.flatMap((h) => ports.map(async (p) => ((await reach(h, p)) ? `${h} ${p}` : null))));
  return all.filter(Boolean);
};

const hosts = ['10.0.0.1', '172.16.0.1', '192.168.1.1', '100.64.0.1', '198.18.0.1', '224.0.0.1', '255.255.255.255', 'fc00::1', 'fe80::1', 'ff02::1'];
module.exports = ({ args }) => reached(hosts, [443, args.port]);
