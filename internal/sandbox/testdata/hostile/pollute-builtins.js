// Replaces what the runner might call.
// expect: value "mine" | thrown * | exited | broke | did_not_settle
JSON.stringify = () => '"stolen"';
JSON.parse = () => ({});
Promise.prototype.then = () => {};
Array.prototype.push = () => 0;
Array.prototype[Symbol.iterator] = () => ({ next: () => ({ done: true }) });
Function.prototype.call = () => {};
Function.prototype.apply = () => {};
Buffer.prototype.toString = () => 'x';
Map.prototype.get = () => undefined;
String.prototype.startsWith = () => true;
globalThis.setImmediate = () => {};
globalThis.Buffer = undefined;
module.exports = () => 'mine';
