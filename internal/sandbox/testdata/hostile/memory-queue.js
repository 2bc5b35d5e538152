// Fills the heap with promises.
// expect: out_of_memory | timed_out
module.exports = async () => { for (;;) Promise.resolve().then(() => new Promise(() => {})); };
