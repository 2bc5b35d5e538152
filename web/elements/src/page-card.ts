// The page of card, number, expiry and cvc frames.
import { brandOf, checkCvc, checkExpiry, checkNumber, cvcLength, digitsOf, expiryDigits, formatExpiry, formatNumber, lengths } from './card';
import { type Rules } from './field';
import { Form } from './form';
import { Frame } from './frame';
import { icon } from './icons';
import { list, own, str, type Bag } from './messages';
import { cardTexts } from './texts';

const frame = new Frame(cardTexts), order = ['number', 'expiry', 'cvc'];
let brand = '', accept: string[] = [];
let sent = '', told = ''; // the number in the last request, and the one whose last digits the page was told

const common = { counts: /\d/, plain: digitsOf, clean: digitsOf, early: () => false };
const rules: Record<string, Rules> = {
  number: {
    ...common, name: 'number', autocomplete: 'cc-number', attribute: 'cardnumber',
    cut: (d) => d.slice(0, Math.max(...lengths(brandOf(d)))),
    format: formatNumber,
    check: (d) => checkNumber(d, accept),
    full: (d) => { const [usual] = lengths(brand); return d.length === (usual > 12 ? usual : 19); },
    label: () => frame.texts.number, placeholder: () => frame.texts.numberHint,
    early: (code) => code === 'number_invalid',
  },
  expiry: {
    ...common, name: 'expiry', autocomplete: 'cc-exp', attribute: 'exp-date', maxLength: 9,
    clean: expiryDigits,
    cut: (d) => d.slice(0, d.slice(2, 4) === '20' ? 5 : 4),
    format: formatExpiry, check: (d) => checkExpiry(d),
    full: (d) => d.length === 4 && d.slice(2) !== '20', // 20 may be the beginning of 2030
    label: () => frame.texts.expiry, placeholder: () => frame.texts.expiryHint,
    early: (code) => code.startsWith('expiry_'),
  },
  cvc: {
    ...common, name: 'cvc', autocomplete: 'cc-csc', attribute: 'cvc',
    cut: (d) => d.slice(0, brand ? cvcLength(brand) : 4),
    format: (d) => d, check: (d) => checkCvc(d, brand), full: (d) => d.length === cvcLength(brand),
    label: () => frame.texts.cvc, placeholder: () => frame.texts[cvcLength(brand) === 4 ? 'cvcHint4' : 'cvcHint'],
  },
};

const form: Form = new Form(frame, {
  rules: frame.kind === 'card' ? order.map((n) => rules[n]) : [rules[frame.kind]],
  order, main: 'number',
  body(value) {
    sent = value('number');
    const data: Bag = { number: sent }, expiry = value('expiry');
    if (expiry) {
      data.expiration_month = +expiry.slice(0, 2);
      data.expiration_year = 2000 + +expiry.slice(2);
    }
    if (value('cvc')) data.cvc = value('cvc');
    return { type: 'card', data };
  },
  result(token) {
    // Requests while somebody types would tell the page more than four digits: a number of 13 digits, then the whole one.
    const card = own(token, 'card'), grown = told && told !== sent && (sent.startsWith(told) || told.startsWith(sent));
    if (!grown) told = sent;
    return { id: str(token, 'id', 400), type: 'card', brand: str(card, 'brand'), last4: grown ? '' : str(card, 'last4', 4) };
  },
  options(o) {
    if (str(o, 'layout')) frame.root.classList.toggle('line', frame.kind === 'card' && str(o, 'layout') === 'line');
    if (Array.isArray(own(o, 'accept'))) accept = list(o, 'accept').filter((b): b is string => typeof b === 'string').slice(0, 20);
  },
  state: () => (form.field('number') ? { brand } : {}),
  posted(type, m) {
    if (type !== 'brand' || form.field('number')) return;
    setBrand(str(m, 'brand', 20));
    form.changed();
  },
  edited: (f) => { if (f.name === 'number') setBrand(brandOf(f.value)); },
  cleared() {
    told = '';
    if (form.field('number')) setBrand('');
  },
});

function setBrand(b: string): void {
  if (b === brand) return;
  brand = b;
  if (form.field('number')) form.toSiblings('brand', { brand });
  draw();
}

/** Draws what depends on the brand. */
function draw(): void {
  form.field('number')?.icon.replaceChildren(icon(brand));
  const cvc = form.field('cvc'), n = cvcLength(brand);
  if (!cvc) return;
  cvc.icon.replaceChildren(icon('', n === 4 ? '1234' : '123'));
  if (brand && cvc.value.length > n) cvc.set(cvc.value.slice(0, n));
  cvc.words();
  cvc.show();
}

draw();
frame.start(form);
