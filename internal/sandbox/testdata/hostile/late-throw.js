// Throws after its answer.
// expect: value "done"
module.exports = () => { setTimeout(() => { throw new Error('late'); }, 1); return Promise.resolve('done'); };
