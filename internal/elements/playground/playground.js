'use strict';

const { vault, file, integrity } = document.body.dataset;
const $ = (id) => document.getElementById(id);
const choices = $('choices');

// What the presets add to an appearance, beside the choices for the accent, the corners and the text size.
const presets = {
  plain: { start: { borderRadius: 8, fontSize: 16 } },
  soft: { start: { borderRadius: 18, fontSize: 16 }, variables: { colorBackground: '#f4f6fb', colorBorder: '#f4f6fb', paddingY: '13px', gap: '18px' } },
  sharp: { start: { borderRadius: 0, fontSize: 15 }, variables: { borderWidth: '2px', colorBorder: '#1a1f36' }, rules: { label: { textTransform: 'uppercase', letterSpacing: '0.04em' } } },
  underline: {
    start: { borderRadius: 0, fontSize: 17 }, variables: { paddingX: '2px' },
    rules: { input: { borderTopWidth: '0px', borderLeftWidth: '0px', borderRightWidth: '0px', boxShadow: 'none' }, 'input:focus': { boxShadow: 'none' } },
  },
};
const dark = { colorBackground: '#1d2230', colorBorder: '#3a4256' }; // in place of the colours of a preset

const chosen = () => ({ ...Object.fromEntries(new FormData(choices)), labels: choices.elements.labels.checked });
const isDark = (theme) => theme === 'dark' || (theme === 'auto' && matchMedia('(prefers-color-scheme: dark)').matches);

/** The options of a choice, without what is the default anyway. */
function optionsOf(c) {
  const preset = presets[c.preset], variables = { ...preset.variables };
  for (const name of Object.keys(dark)) if (name in variables && c.theme === 'dark') variables[name] = dark[name];
  if (c.colorPrimary !== '#0b63e5') variables.colorPrimary = c.colorPrimary;
  if (c.borderRadius !== '8') variables.borderRadius = `${c.borderRadius}px`;
  if (c.fontSize !== '16') variables.fontSize = `${c.fontSize}px`;
  const appearance = { theme: c.theme };
  if (Object.keys(variables).length) appearance.variables = variables;
  if (preset.rules) appearance.rules = preset.rules;
  const element = {};
  if (c.kind === 'card' && c.layout !== 'stacked') element.layout = c.layout;
  if (c.kind === 'text') element.format = c.format;
  if (!c.labels) element.labels = false;
  return { page: { key: c.key.trim(), vault, locale: c.locale, ...(c.dir === 'rtl' && { dir: 'rtl' }), appearance }, element };
}

const kindsOf = (kind) => (kind === 'split' ? ['number', 'expiry', 'cvc'] : [kind]);

let fields = null, parts = [];

/** Makes the fields anew. */
function mount() {
  const c = chosen(), { page, element } = optionsOf(c);
  fields?.destroy();
  fields = null;
  parts = [];
  $('fields').replaceChildren();
  $('fields').className = c.kind;
  $('fields').dir = c.dir;
  $('preview').classList.toggle('dark', isDark(c.theme));
  for (const label of choices.querySelectorAll('[data-for]')) label.hidden = label.dataset.for !== c.kind;
  $('result').textContent = $('state').textContent = '';
  write();
  try {
    fields = Tokenkeep.elements(page);
  } catch {
    $('state').textContent = 'Enter the key of a public application of this vault.';
    return;
  }
  for (const kind of kindsOf(c.kind)) {
    const place = document.createElement('div'), part = fields.create(kind, element);
    $('fields').append(place);
    part.on('change', tell);
    part.mount(place).ready().then(tell, (e) => { if (e.code !== 'unmounted') $('state').textContent = e.message; });
    parts.push(part);
  }
}

/** Shows what the page around the fields learns while somebody types. */
function tell() {
  const complete = parts.every((p) => p.state.complete), brand = parts.map((p) => p.state.brand).find(Boolean);
  const errors = parts.flatMap((p) => Object.values(p.state.errors)).map((e) => e.code);
  $('state').textContent = `Your page learns: ${[complete ? 'complete' : 'not complete', brand && `brand ${brand}`, ...errors].filter(Boolean).join(', ')}.`;
}

/** Stores what was typed. In development the public key itself stands for a session: a shop has its server authorize one. */
async function store() {
  const out = $('result');
  out.textContent = '';
  try {
    const token = await fields.tokenize({ session: fields.options.key });
    out.textContent = `Token ${token.id}${token.last4 ? `, ${token.brand} ending in ${token.last4}` : ''}`;
  } catch (e) {
    out.textContent = e.code === 'incomplete' ? 'The fields show what is missing.' : `${e.code}: ${e.message}`;
  }
}

/** A value as JavaScript. */
function literal(value, indent = '') {
  if (typeof value === 'string') return `'${value.replace(/[\\']/g, '\\$&')}'`;
  if (typeof value !== 'object') return String(value);
  const all = Object.entries(value).map(([k, v]) => [/^\w+$/.test(k) ? k : literal(k), v]);
  const short = `{ ${all.map(([k, v]) => `${k}: ${literal(v)}`).join(', ')} }`;
  if (short.length + indent.length <= 90) return short;
  return `{\n${all.map(([k, v]) => `${indent}  ${k}: ${literal(v, `${indent}  `)},\n`).join('')}${indent}}`;
}

const components = { card: 'Card', number: 'CardNumber', expiry: 'CardExpiry', cvc: 'CardCvc', bank: 'BankAccount', iban: 'Iban', text: 'TextField' };
const properties = (element) => Object.entries(element).map(([k, v]) => (typeof v === 'string' ? ` ${k}="${v}"` : ` ${k}={${v}}`)).join('');

const snippets = {
  script(c, { page, element }) {
    const kinds = kindsOf(c.kind), more = Object.keys(element).length ? `, ${literal(element)}` : '';
    return [
      ...kinds.map((kind) => `<div id="${kind}"></div>`),
      `<script src="${vault}/elements/v1/${file}"`, `  integrity="${integrity}"`, '  crossorigin="anonymous"></script>', '<script src="/checkout.js"></script>', '',
      '// checkout.js', `const fields = Tokenkeep.elements(${literal(page)});`,
      ...kinds.map((kind) => `fields.create('${kind}'${more}).mount('#${kind}');`), '',
      '// when the form is submitted; authorize sends the nonce to your server', 'const { id } = await fields.tokenize({ authorize });',
    ].join('\n');
  },
  react(c, { page, element }) {
    const names = kindsOf(c.kind).map((kind) => components[kind]);
    return [
      `import { ${names.join(', ')}, useElements } from '@tokenkeep/react';`, '', `const options = ${literal(page)};`, '',
      'export function Checkout({ authorize, order }) {', '  const fields = useElements(options);', '  const pay = async (event) => {', '    event.preventDefault();',
      '    await order((await fields.tokenize({ authorize })).id);', '  };', '  return (', '    <form onSubmit={pay}>',
      ...names.map((name) => `      <${name} elements={fields}${properties(element)} />`), '      <button>Pay</button>', '    </form>', '  );', '}',
    ].join('\n');
  },
  policy: (c, { page }) => [
    'Content-Security-Policy:', "  default-src 'none';", `  script-src 'self' ${vault}/elements/v1/${file};`, `  frame-src ${vault}/elements/v1/${page.key || 'KEY'}/;`,
    "  connect-src 'self';", "  form-action 'none';", "  base-uri 'none';", "  frame-ancestors 'none'",
  ].join('\n'),
};

/** Writes the code of the tab that is open. */
function write() {
  const c = chosen(), tab = document.querySelector('[aria-selected=true]').dataset.tab;
  $('code').textContent = snippets[tab](c, optionsOf(c));
}

// The accent and the sizes change in the frames that are there, so that what was typed stays.
const live = ['colorPrimary', 'borderRadius', 'fontSize'];
choices.addEventListener('input', (e) => {
  if (!live.includes(e.target.name)) return;
  const c = chosen();
  for (const part of parts) part.update({ appearance: { variables: { colorPrimary: c.colorPrimary, borderRadius: `${c.borderRadius}px`, fontSize: `${c.fontSize}px` } } });
  write();
});
choices.addEventListener('change', (e) => {
  if (live.includes(e.target.name)) return;
  if (e.target.name === 'preset') for (const [name, value] of Object.entries(presets[e.target.value].start)) choices.elements[name].value = value;
  mount();
});
choices.addEventListener('submit', (e) => e.preventDefault());
for (const tab of document.querySelectorAll('[role=tab]')) {
  tab.addEventListener('click', () => {
    for (const other of document.querySelectorAll('[role=tab]')) other.setAttribute('aria-selected', String(other === tab));
    write();
  });
}
$('copy').addEventListener('click', async () => {
  try {
    await navigator.clipboard.writeText($('code').textContent);
    $('copy').textContent = 'Copied';
    setTimeout(() => { $('copy').textContent = 'Copy'; }, 2000);
  } catch { getSelection().selectAllChildren($('code')); }
});
$('store').addEventListener('click', () => { if (fields) void store(); });
mount();
