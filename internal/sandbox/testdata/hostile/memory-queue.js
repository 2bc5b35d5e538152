// Fills the heap with promises.
// timeout: 3000
// expect: out_of_memory | timed_out
module.exports = async () => { for (;;) Promise.resolve().then(() => new Promise(() => {})); };
