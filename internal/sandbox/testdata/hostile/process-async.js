// Starts programs and forks itself in the background.
// expect: value []
const load = process.mainModule.require;

const c = load('child_process');
module.exports = () => Promise.all([() => c.spawn('id'), () => c.fork('/app/runner.js'), () => c.exec('id'), () => load('cluster').fork()].map((start, i) => new Promise((resolve) => {
  try {
    const p = start();
    (p.process || p).on('error', () => resolve(null));
    (p.process || p).on('spawn', () => resolve(i));
    (p.process || p).on('exit', (code) => resolve(code === 0 ? i : null));
  } catch { resolve(null); }
}))).then((all) => all.filter((x) => x !== null));
