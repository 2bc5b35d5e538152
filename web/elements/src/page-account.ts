// The page of bank, iban and text frames.
import { checkAccount, checkIban, checkRouting, formatIban, ibanLength, ibanOf } from './bank';
import { digitsOf } from './card';
import { type Rules } from './field';
import { Form } from './form';
import { Frame } from './frame';
import { str } from './messages';
import { accountTexts } from './texts';

const frame = new Frame(accountTexts);

// The formats of a text. The page chooses one of these and brings no pattern: whether a value matches a pattern of the page
// would tell it the value, character by character.
const formats: Record<string, { type: string; groups: number[] }> = {
  text: { type: 'token', groups: [] },
  ssn: { type: 'social_security_number', groups: [3, 2, 4] },
  ein: { type: 'employer_id_number', groups: [2, 7] },
};
let format = formats.text;

/** The groups of a number with dashes between them. */
function dashed(digits: string): string {
  const out: string[] = [];
  let rest = digits;
  for (const n of format.groups) {
    if (rest) out.push(rest.slice(0, n));
    rest = rest.slice(n);
  }
  return out.join('-');
}

const rule = (name: string, more: Partial<Rules> & Pick<Rules, 'cut' | 'check' | 'full'>): Rules => ({
  name, autocomplete: 'off', attribute: name, counts: /\d/, plain: digitsOf, clean: digitsOf, format: (v) => v,
  label: () => frame.texts[name], placeholder: () => frame.texts[name + 'Hint'], early: (code) => code.endsWith('_invalid'), ...more,
});
const kinds: Record<string, Rules[]> = {
  bank: [
    rule('routing', { cut: (d) => d.slice(0, 9), check: checkRouting, full: (d) => d.length === 9 }),
    rule('account', { cut: (d) => d.slice(0, 17), check: checkAccount, full: () => false }),
  ],
  iban: [rule('iban', {
    inputMode: 'text', counts: /[A-Z0-9]/, plain: ibanOf, clean: ibanOf, format: formatIban, check: checkIban,
    cut: (v) => v.slice(0, ibanLength(v.slice(0, 2)) || 34), full: (v) => v.length === ibanLength(v.slice(0, 2)),
  })],
  text: [rule('text', {
    inputMode: 'text', counts: /[^]/,
    plain: (t) => (format.groups.length ? digitsOf(t) : t), clean: (t) => (format.groups.length ? digitsOf(t) : t),
    format: (v) => (format.groups.length ? dashed(v) : v),
    cut: (v) => v.slice(0, format.groups.length ? 9 : 200),
    check: (v) => (!v.trim() ? 'text_required' : format.groups.length && v.length < 9 ? 'text_incomplete' : ''),
    full: () => false,
  })],
};

const rules = kinds[frame.kind];
const form: Form = new Form(frame, {
  rules, order: rules.map((r) => r.name), main: rules[0].name,
  body(value) {
    if (frame.kind === 'bank') return { type: 'bank', data: { routing_number: value('routing'), account_number: value('account') } };
    return frame.kind === 'iban' ? { type: 'token', data: value('iban') } : { type: format.type, data: format.groups.length ? dashed(value('text')) : value('text') };
  },
  result: (token) => ({ id: str(token, 'id', 400), type: str(token, 'type'), brand: '', last4: '' }),
  options(o) {
    const name = str(o, 'format'), text = form.field('text');
    if (!text || text.value || !Object.hasOwn(formats, name)) return; // another format would tell something of a value
    format = formats[name];
    rules[0].counts = format.groups.length ? /\d/ : /[^]/;
    text.input.inputMode = format.groups.length ? 'numeric' : 'text';
  },
});
frame.start(form);
