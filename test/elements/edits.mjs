// Random edits of the card number, compared with a model: the digits left of the selection, what is inserted, and the digits right of it.
import fs from 'node:fs';

const table = [...fs.readFileSync(new URL('../../web/elements/src/brands.gen.ts', import.meta.url), 'utf8').matchAll(/'([^']+)'/g)].map((m) => m[1]).join('');
const ranges = table.split('|').flatMap((row) => row.split(' ').slice(1).map((r) => [row.split(' ')[0], ...(r.includes('-') ? r.split('-') : [r, r])]));
const brandOf = (d) => ranges.filter(([, first, last]) => d.length >= first.length && d.slice(0, first.length) >= first && d.slice(0, first.length) <= last)
  .sort((a, b) => b[1].length - a[1].length)[0]?.[0] ?? '';
const longest = (d) => ({ 'american-express': 15, mastercard: 16, elo: 16, hiper: 16, hipercard: 16 })[brandOf(d)] ?? 19;
const groups = (d) => (brandOf(d) === 'american-express' || (brandOf(d) === 'diners-club' && d.length <= 14) ? [4, 6, 9] : [4, 4, 4, 4, 3]);
function format(d) {
  const out = [];
  for (const n of groups(d)) {
    if (d) out.push(d.slice(0, n));
    d = d.slice(n);
  }
  return out.join(' ');
}
const digits = (text) => text.replace(/\D/g, '');

/** Applies one edit to a number, and returns the number and the digits left of the caret. */
function model(number, { type, text, from, to }) {
  const shown = format(number), left = digits(shown.slice(0, from)), right = digits(shown.slice(to)), empty = digits(shown.slice(from, to)) === '';
  let next, at;
  if (type === 'insertText') [next, at] = [left + digits(text) + right, left.length + digits(text).length];
  else if (!empty) [next, at] = [left + right, left.length];
  else if (type === 'delete') [next, at] = [left.slice(0, -1) + right, Math.max(left.length - 1, 0)];
  else [next, at] = [left + right.slice(1), left.length];
  next = next.slice(0, longest(next));
  return { number: next, left: Math.min(at, next.length) };
}

/** A generator of numbers from 0 to n-1 that a seed determines. */
function randomly(seed) {
  let state = BigInt(seed) | 1n;
  return (n) => {
    state = (state * 6364136223846793005n + 1442695040888963407n) & ((1n << 64n) - 1n);
    return Number((state >> 33n) % BigInt(n));
  };
}
const starts = ['4', '5555', '37', '3056', '6011', '2221', '6', '9', '1800', '62', '650031', ''];

function sequence(pick) {
  const steps = [];
  let number = '';
  for (let i = 0, n = 4 + pick(12); i < n; i++) {
    const length = format(number).length, from = pick(length + 1), to = pick(3) ? from : from + pick(length - from + 1);
    const text = i === 0 ? starts[pick(starts.length)] + String(pick(1e9)) : Array.from({ length: 1 + pick(6) }, () => '0123456789- '[pick(12)]).join('');
    const step = { type: number === '' ? 'insertText' : ['insertText', 'insertText', 'delete', 'forwardDelete'][pick(4)], text, from, to };
    if (step.type !== 'insertText' && from === 0 && to === 0) step.type = 'forwardDelete';
    const after = model(number, step);
    steps.push({ ...step, want: format(after.number), left: after.left });
    number = after.number;
  }
  return steps;
}

export default async function ({ world, launch, check, shop, frameOf }) {
  const pick = randomly(world.seed), sequences = Array.from({ length: world.rounds }, () => sequence(pick));
  const browser = await launch();
  try {
    const page = await shop(browser, `${world.shop}/`);
    const wrong = await frameOf(page).evaluate((all) => {
      const input = document.querySelector('#tk-number');
      for (const steps of all) {
        input.focus();
        input.select();
        if (input.value) document.execCommand('delete');
        for (const [i, s] of steps.entries()) {
          input.focus();
          input.setSelectionRange(s.from, s.to);
          document.execCommand(s.type, false, s.text);
          const left = input.value.slice(0, input.selectionStart).replace(/\D/g, '').length;
          if (input.value !== s.want || (document.activeElement === input && left !== s.left)) return { steps: steps.slice(0, i + 1), got: input.value, left };
        }
      }
      return null;
    }, sequences);
    check(`${sequences.length} random sequences of edits are as the model has them`, wrong === null, wrong);
    check('there were edits', sequences.every((s) => s.length >= 4), sequences.length);
    await page.context().close();
  } finally {
    await browser.close();
  }
}
