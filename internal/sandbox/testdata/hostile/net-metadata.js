// Calls the metadata services of clouds.
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

const hosts = ['169.254.169.254', '0xa9fea9fe', '2852039166', '0251.0376.0251.0376', '::ffff:169.254.169.254', '::ffff:a9fe:a9fe', 'fd00:ec2::254', '100.100.100.200',
  '192.0.0.192', 'metadata.google.internal', 'metadata', 'instance-data', '169.254.170.2'];
module.exports = () => reached(hosts, [80]);
