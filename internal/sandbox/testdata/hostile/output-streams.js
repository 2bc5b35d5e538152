// Floods the console by its streams.
// expect: value "done"
module.exports = () => { for (let i = 0; i < 5000; i++) { process.stdout.write('x'.repeat(100)); process.stderr.write('y'); } return 'done'; };
