// Charges a card at a payment service. The number goes there and nowhere else.
//
// args:          card (a card token), amount (in cents), currency, order
// configuration: URL, SECRET_KEY
const axios = require('axios');
const { BadRequestError, InvalidPaymentMethodError, InvalidReactorConfigurationError } = require('tokenkeep/errors');

module.exports = async ({ args, configuration }) => {
  const { card, amount, currency, order } = args;
  if (!Number.isInteger(amount) || amount <= 0) throw new BadRequestError({ amount: ['must be a whole number of cents'] });

  const { status, data } = await axios.post(`${configuration.URL}/charges`, {
    amount,
    currency,
    card: { number: card.number, exp_month: card.expiration_month, exp_year: card.expiration_year, cvc: card.cvc },
  }, {
    // The same order is charged once, whatever happens to this run.
    headers: { Authorization: `Bearer ${configuration.SECRET_KEY}`, 'Idempotency-Key': order },
    timeout: 8000,
    validateStatus: () => true,
  });

  if (status === 401) throw new InvalidReactorConfigurationError('the payment service does not know SECRET_KEY');
  if (status === 402) throw new InvalidPaymentMethodError(data.decline_code);
  if (status !== 201) throw new Error(`the payment service answered with ${status}`);
  return { raw: { charge: data.id, last4: card.number.slice(-4) } };
};
