// Reaches the engine through its own debugger to start a program.
// expect: value "refused"
const load = process.mainModule.require;

module.exports = () => new Promise((resolve) => {
  const s = new (load('inspector').Session)();
  s.connect();
  s.post('Runtime.evaluate', { expression: "process.mainModule.require('child_process').execSync('id').toString()" }, (e, r) => resolve(e || r.exceptionDetails ? 'refused' : 'ran'));
});
