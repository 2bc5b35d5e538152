// Reads the environment.
// expect: value ["HOME","LANG","NODE_ENV","PATH","TZ"]
module.exports = () => Object.keys(process.env).sort();
