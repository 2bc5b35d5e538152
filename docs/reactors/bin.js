// Looks up who issued a card, and tells no more of it than that.
//
// args:          number (a card number, or the number of a card token)
// configuration: URL
const axios = require('axios');
const { CustomHttpResponseError } = require('tokenkeep/errors');

module.exports = async ({ args, configuration }) => {
  const bin = args.number.slice(0, args.number.length < 16 ? 6 : 8);
  const { status, data } = await axios.get(`${configuration.URL}/${bin}`, { validateStatus: (s) => s === 200 || s === 404 });
  if (status === 404) throw new CustomHttpResponseError({ status: 404, body: { issuer: 'unknown' } });
  return { raw: { brand: data.scheme, issuer: data.bank, country: data.country } };
};
