// Turns the compiler and its dangerous functions on.
// expect: value "done" | exited | out_of_memory
const load = process.mainModule.require;

module.exports = () => {
  const v8 = load('v8');
  v8.setFlagsFromString('--no-jitless');
  v8.setFlagsFromString('--allow-natives-syntax');
  const hot = new Function('x', 'let s = 0; for (let i = 0; i < 1e5; i++) s += i ^ x; return s');
  for (let i = 0; i < 50; i++) hot(i);
  return 'done';
};
