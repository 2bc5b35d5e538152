import { elements } from '@tokenkeep/elements';

const fields = elements({ vault: 'https://vault.example' }); // wrong: no key
fields.create('iban '); // wrong: no such kind
const card = fields.create('card');
card.on('typed', () => {}); // wrong: no such event
fields.tokenize({ mask: '{{ data.number }}' }); // wrong: an expression over the number
const { number } = await fields.tokenize({ session: 'x' }); // wrong: no value comes back
console.log(number);
