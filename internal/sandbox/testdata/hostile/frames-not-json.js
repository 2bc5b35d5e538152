// Answers with the right nonce and no JSON.
// expect: broke
const fs = process.binding('fs');
const write = fs.writeBuffer;
fs.writeBuffer = function garbled(fd, buffer, ...rest) {
  if (fd === 3 && buffer[4] === 2) buffer.fill('{', 13);
  return write.call(fs, fd, buffer, ...rest);
};
module.exports = () => 'a text of some length';
