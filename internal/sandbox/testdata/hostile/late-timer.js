// Leaves timers behind.
// expect: value "done"
module.exports = () => { setInterval(() => {}, 1); setTimeout(() => { for (;;); }, 1); return 'done'; };
