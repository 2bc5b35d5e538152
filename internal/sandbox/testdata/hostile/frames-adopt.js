// Makes the stream to the parent a socket of its own, and closes it.
// expect: exited | timed_out | broke
const load = process.mainModule.require;
module.exports = () => new Promise(() => {
  const s = new (load('net').Socket)({ fd: 3 });
  s.end('x'.repeat(100));
  setInterval(() => {}, 10);
});
