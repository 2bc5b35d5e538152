// Kills itself.
// expect: exited | value "alive" | timed_out
module.exports = () => { for (const s of ['SIGTERM', 'SIGABRT', 'SIGSEGV', 'SIGKILL']) process.kill(process.pid, s); return 'alive'; };
