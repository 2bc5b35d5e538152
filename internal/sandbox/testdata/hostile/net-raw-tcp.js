// Connects by the bare binding, below every patch.
// expect: value []
const { TCP, TCPConnectWrap, constants } = process.binding('tcp_wrap');
module.exports = ({ args }) => Promise.all(['connect', 'connect6'].map((way) => new Promise((resolve) => {
  const handle = new TCP(constants.SOCKET);
  const request = new TCPConnectWrap();
  request.oncomplete = (status) => resolve(status === 0 ? way : null);
  const code = handle[way](request, way === 'connect' ? '127.0.0.1' : '::1', args.port);
  if (code !== 0) resolve(null);
}))).then((all) => all.filter(Boolean));
