// Loops in its exports.
// expect: timed_out
Object.defineProperty(module, 'exports', { get() { for (;;); } });
