// Sends a bank transfer to a service that speaks XML.
//
// args:          account (a bank token), amount, reference
// configuration: URL
const fetch = require('node-fetch');
const { create } = require('xmlbuilder2');
const { XMLParser } = require('fast-xml-parser');

module.exports = async ({ args, configuration }) => {
  // The builder escapes what needs it: values never become markup.
  const body = create({
    Transfer: {
      '@version': '1',
      Routing: args.account.routing_number,
      Account: args.account.account_number,
      Amount: args.amount,
      Reference: args.reference,
    },
  }).end();

  const response = await fetch(configuration.URL, { method: 'POST', headers: { 'Content-Type': 'application/xml' }, body });
  const { Receipt } = new XMLParser({ ignoreAttributes: false, parseTagValue: false }).parse(await response.text());
  return { raw: { receipt: Receipt['@_id'], state: Receipt.State } };
};
