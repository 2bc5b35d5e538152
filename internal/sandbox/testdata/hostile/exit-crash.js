// Overflows the stack of the engine.
// expect: exited | thrown RangeError | out_of_memory
const load = process.mainModule.require;

module.exports = () => { load('v8').setFlagsFromString('--stack-size=900000'); const deep = () => deep() + 1; return new Function('d', 'return d()')(deep); };
