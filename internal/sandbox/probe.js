'use strict';
// Tries what must not work in a sandbox and returns the names of what did.
const load = process.mainModule.require;
const fs = load('fs');

// The errors that walls give, by what was tried.
const refused = ['EPERM', 'EACCES', 'ENOENT', 'EROFS', 'ENOSYS', 'EAFNOSUPPORT'];

const attempts = {
  'a file of the machine can be read': () => fs.readFileSync('/etc/passwd'),
  'the environment of the server can be read': () => fs.readFileSync('/proc/1/environ'),
  'folders can be listed': () => fs.readdirSync('/etc'),
  'files can be written': () => fs.writeFileSync('/tmp/tokenkeep-probe', 'x'),
  'the runtime can be changed': () => fs.appendFileSync(process.mainModule.filename, ' '),
  'processes can be started': () => {
    const { error } = load('child_process').spawnSync(process.execPath, ['-v']);
    if (error) throw error;
  },
  'sockets can be opened': () => {
    const { TCP, constants } = process.binding('tcp_wrap');
    const code = new TCP(constants.SOCKET).bind('127.0.0.1', 0);
    if (code) throw Object.assign(new Error(), { code: load('util').getSystemErrorName(code) });
  },
  'other processes can be signalled': () => process.kill(process.ppid || 2, 0),
};

// With namespaces there is more to see.
const inside = {
  'the processes of the machine are visible': () => process.pid !== 1,
  'the name of the machine is visible': () => load('os').hostname() !== 'sandbox',
};

module.exports = ({ args }) => {
  if (args.level === 'unsafe_none') return [];
  const open = Object.keys(attempts).filter((name) => {
    try {
      attempts[name]();
      return true;
    } catch (e) {
      return !refused.includes(e.code);
    }
  });
  const seen = args.level === 'full' ? Object.keys(inside).filter((name) => inside[name]()) : [];
  return open.concat(seen);
};
