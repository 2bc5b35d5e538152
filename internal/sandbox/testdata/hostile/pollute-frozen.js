// Freezes everything.
// expect: value * | thrown * | exited
for (const o of [Object.prototype, Array.prototype, Function.prototype, Promise.prototype, Buffer.prototype, process, globalThis]) { try { Object.freeze(o); } catch { /* some refuse */ } }
module.exports = () => 'mine';
