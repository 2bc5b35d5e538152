'use strict';

// Says of each delivery on standard input whether a receiver with that secret
// takes it for genuine.
const { Webhook } = require('standardwebhooks');

let text = '';
process.stdin.setEncoding('utf8').on('data', (part) => (text += part)).on('end', () => {
  const answers = JSON.parse(text).map(({ secret, headers, body }) => {
    try {
      new Webhook(secret).verify(body, headers);
      return 'genuine';
    } catch (e) {
      return e.message;
    }
  });
  process.stdout.write(JSON.stringify(answers));
});
