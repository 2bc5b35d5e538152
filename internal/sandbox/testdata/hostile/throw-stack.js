// Hooks the making of stacks.
// expect: thrown *
Error.prepareStackTrace = () => { throw new Error('hooked'); };
module.exports = () => { throw new Error('x'); };
