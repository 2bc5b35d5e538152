// Throws where nobody catches.
// expect: thrown Error
module.exports = () => new Promise(() => { setTimeout(() => { throw new Error('uncaught'); }, 1); });
