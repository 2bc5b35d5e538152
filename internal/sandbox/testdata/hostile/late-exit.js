// Exits after its answer.
// expect: value "done"
module.exports = () => { setTimeout(() => process.exit(1), 1); return 'done'; };
