// Leaves a rejection unhandled.
// expect: thrown Error
module.exports = () => { Promise.reject(new Error('unhandled')); return new Promise(() => { setTimeout(() => {}, 1000); }); };
