// Asks where it is.
// expect: value {"host":"sandbox","pid":1,"interfaces":["lo"],"cpus":1} | value {"host":"sandbox","pid":1,"interfaces":[],"cpus":1}
const load = process.mainModule.require;

const os = load('os');
module.exports = () => {
  let interfaces = [];
  try { interfaces = Object.keys(os.networkInterfaces()); } catch { /* refused */ }
  return { host: os.hostname(), pid: process.pid, interfaces, cpus: os.cpus().length };
};
