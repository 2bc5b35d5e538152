// Calls a service that wants every request signed with a shared secret.
//
// args:          customer (any token), path
// configuration: URL, KEY_ID, SECRET
const crypto = require('crypto');
const axios = require('axios');

module.exports = async ({ args, configuration }) => {
  const body = JSON.stringify({ customer: args.customer });
  const timestamp = Math.floor(Date.now() / 1000);
  const digest = crypto.createHash('sha256').update(body).digest('hex');
  const signature = crypto.createHmac('sha256', configuration.SECRET)
    .update(['POST', args.path, timestamp, digest].join('\n'))
    .digest('base64');

  // What is signed is what is sent: the text, not an object that is written again.
  const { data } = await axios.post(configuration.URL + args.path, body, {
    headers: {
      'Content-Type': 'application/json',
      'X-Timestamp': timestamp,
      Authorization: `HMAC-SHA256 keyId="${configuration.KEY_ID}", signature="${signature}"`,
    },
  });
  return { raw: data };
};
