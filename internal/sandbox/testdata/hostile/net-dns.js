// Resolves names by datagrams of its own.
// expect: value "refused"
const load = process.mainModule.require;

const dns = load('dns');
module.exports = async () => {
  const r = new dns.promises.Resolver({ timeout: 200, tries: 1 });
  r.setServers(['127.0.0.1']);
  try { await r.resolve4('example.com'); } catch { return 'refused'; }
  return 'resolved';
};
