// Makes the thread pool a thousand threads wide.
// expect: value "done" | exited | timed_out | out_of_memory
const load = process.mainModule.require;

process.env.UV_THREADPOOL_SIZE = '1024';
const { pbkdf2 } = load('crypto');
module.exports = async () => {
  await Promise.all(Array.from({ length: 64 }, () => new Promise((resolve) => { pbkdf2('x', 'y', 10, 32, 'sha256', resolve); })));
  return 'done';
};
