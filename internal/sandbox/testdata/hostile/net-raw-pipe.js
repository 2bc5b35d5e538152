// Connects to unix sockets of the machine, by path and by abstract name.
// expect: value []
const load = process.mainModule.require;

const net = load('net');
module.exports = ({ args }) => Promise.all([args.socket, '\0' + args.abstract, '/run/docker.sock', '/var/run/nscd/socket', '/run/systemd/private'].map((path) => new Promise((resolve) => {
  const s = net.connect({ path });
  s.on('data', () => resolve(path));
  s.on('error', () => resolve(null));
  s.on('close', () => resolve(null));
  s.write('hello');
}))).then((all) => all.filter(Boolean));
