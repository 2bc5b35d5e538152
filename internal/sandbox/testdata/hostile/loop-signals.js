// Catches every signal and loops.
// expect: timed_out
for (const s of ['SIGTERM', 'SIGINT', 'SIGHUP', 'SIGQUIT', 'SIGALRM', 'SIGUSR1', 'SIGUSR2', 'SIGXCPU']) process.on(s, () => {});
module.exports = () => { for (;;); };
