// Looks for descriptors that were left open, and reads what they lead to.
// expect: value []
const load = process.mainModule.require;

const fs = load('fs');
module.exports = () => {
  const found = [];
  for (let fd = 0; fd < 256; fd++) {
    let s;
    try { s = fs.fstatSync(fd); } catch { continue; }
    if (s.isFile() || s.isDirectory() || s.isBlockDevice()) found.push(fd);
  }
  return found;
};
