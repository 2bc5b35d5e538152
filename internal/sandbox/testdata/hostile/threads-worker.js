// Starts workers, which would go on between calls.
// expect: thrown TypeError
const load = process.mainModule.require;

module.exports = () => {
  const { Worker } = load('worker_threads');
  for (let i = 0; i < 200; i++) new Worker('while (true);', { eval: true });
};
