// Forks two thousand times.
// expect: value 0
const load = process.mainModule.require;

module.exports = () => {
  let started = 0;
  for (let i = 0; i < 2000; i++) {
    try {
      const p = load('child_process').spawn(process.execPath, [process.argv[1]]);
      p.on('error', () => {});
      if (p.pid) started++;
    } catch { /* refused */ }
  }
  return started;
};
