// Opens the debugger to the network.
// expect: value false | thrown Error
const load = process.mainModule.require;

module.exports = () => { load('inspector').open(0, '127.0.0.1'); return load('inspector').url() !== undefined; };
