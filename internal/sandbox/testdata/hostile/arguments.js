// Looks for anything of the server in its own arguments and title.
// expect: value ["/bin/node","/app/runner.js"]
module.exports = () => process.argv;
