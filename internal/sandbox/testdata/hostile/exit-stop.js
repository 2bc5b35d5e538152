// Stops itself.
// expect: value "alive" | timed_out
module.exports = () => { process.kill(process.pid, 'SIGSTOP'); return 'alive'; };
