import { elements, TokenkeepError, type Token } from '@tokenkeep/elements';

const fields = elements({ key: 'key_test_pub_x', vault: 'https://vault.example', locale: 'de', appearance: { theme: 'auto', variables: { borderRadius: '8px' } } });
const card = fields.create('card', { layout: 'line' }).mount('#card');
const off = card.on('change', (e) => console.log(e.complete, e.brand, e.errors.number?.code));

export async function pay(): Promise<Token | string> {
  try {
    return await fields.tokenize({ authorize: (nonce) => fetch('/authorize', { method: 'POST', body: JSON.stringify({ nonce }) }), metadata: { order: '7' } });
  } catch (e) {
    return e instanceof TokenkeepError ? e.code : 'other';
  } finally {
    off();
  }
}
