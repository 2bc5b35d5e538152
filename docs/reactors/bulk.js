// Takes customers over from another system: fetches them as CSV and puts their
// cards and names away. What comes back has tokens in their places.
//
// args:          from
// configuration: URL, PASSWORD
const axios = require('axios');
const { parse } = require('csv-parse/sync');

module.exports = async ({ args, configuration }) => {
  const { data } = await axios.get(configuration.URL, {
    params: { from: args.from },
    auth: { username: 'export', password: configuration.PASSWORD },
    responseType: 'text',
  });
  const rows = parse(data, { columns: true, skip_empty_lines: true });
  console.log(`${rows.length} customers`); // counts, never values
  if (rows.length > 500) throw new Error('ask for fewer: at most 1,000 tokens are made at once');

  return {
    raw: { customers: rows.length },
    tokenize: rows.map(({ customer, name, number, month, year }) => ({
      name,
      card: {
        type: 'card',
        data: { number, expiration_month: Number(month), expiration_year: Number(year) },
        metadata: { customer },
      },
    })),
  };
};
