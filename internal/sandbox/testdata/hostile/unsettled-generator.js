// Awaits what never comes.
// expect: did_not_settle
module.exports = async () => { for await (const x of { [Symbol.asyncIterator]: () => ({ next: () => new Promise(() => {}) }) }) return x; };
