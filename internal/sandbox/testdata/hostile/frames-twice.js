// Answers twice with the right nonce, by patching what the runner writes with.
// expect: value "mine"
const fs = process.binding('fs');
const write = fs.writeBuffer;
fs.writeBuffer = function twice(fd, ...rest) {
  if (fd === 3) write.call(fs, fd, ...rest);
  return write.call(fs, fd, ...rest);
};
module.exports = () => 'mine';
