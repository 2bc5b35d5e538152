// Waits for a timer that always comes again.
// expect: timed_out
module.exports = () => new Promise(() => { setInterval(() => {}, 10); });
