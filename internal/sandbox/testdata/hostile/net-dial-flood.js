// Asks for more destinations than it may have.
// expect: value ["EACCES"] | value ["EACCES","EMFILE"] | value ["EMFILE","EACCES"]
const load = process.mainModule.require;

module.exports = async () => {
  const codes = await Promise.all(Array.from({ length: 300 }, (_, i) => new Promise((resolve) => {
    load('net').connect(443, `host${i}.example.com`).on('error', (e) => resolve(e.code));
  })));
  return [...new Set(codes)];
};
