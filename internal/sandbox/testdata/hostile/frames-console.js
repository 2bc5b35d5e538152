// Prints what is not a line of JSON, with the right nonce.
// expect: broke
const fs = process.binding('fs');
const write = fs.writeBuffer;
fs.writeBuffer = function garbled(fd, buffer, ...rest) {
  if (fd === 3 && buffer[4] === 1) buffer.fill(10, 13);
  return write.call(fs, fd, buffer, ...rest);
};
module.exports = () => { console.log('two', 'words'); return 1; };
