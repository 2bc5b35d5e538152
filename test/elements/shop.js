const q = new URLSearchParams(location.search), { key, vault } = document.body.dataset;
const dark = q.get('theme') === 'dark' || (q.get('theme') === 'auto' && matchMedia('(prefers-color-scheme: dark)').matches);
document.documentElement.classList.toggle('dark', dark);
if (q.get('dir')) document.documentElement.dir = q.get('dir');
const look = { theme: q.get('theme') ?? 'light', ...(q.get('look') && JSON.parse(q.get('look'))) };
const elements = (window.elements = Tokenkeep.elements({ key, vault, locale: 'en', appearance: look, ...(q.get('more') && JSON.parse(q.get('more'))) }));
const at = document.querySelector('#fields'), log = (window.log = []), out = document.querySelector('output'), form = document.querySelector('form'), pay = document.querySelector('.pay');
const make = (kind, o, where = at) => { const e = elements.create(kind, o); for (const t of ['ready', 'change', 'focus', 'blur', 'submit', 'refused']) e.on(t, (d) => log.push([kind, t, d])); e.on('submit', () => form.requestSubmit()); return e.mount(where); };
const div = (id, p = at) => { const d = document.createElement('div'); d.id = id; p.append(d); return d; };
const mode = q.get('mode') ?? 'card';
window.parts = {};
if (mode === 'split') { parts.number = make('number', {}, div('number')); const r = div('row'); r.className = 'row'; parts.expiry = make('expiry', {}, div('expiry', r)); parts.cvc = make('cvc', {}, div('cvc', r)); }
else if (mode === 'element') { const c = document.createElement('tokenkeep-card'); c.setAttribute('public-key', key); c.setAttribute('vault', vault); c.setAttribute('theme', look.theme); at.append(c); }
else if (mode !== 'none') parts.card = make('card', { layout: mode === 'line' ? 'line' : 'stacked' });
window.authorize = async (nonce, token) => { log.push(['nonce', nonce]); const a = await fetch('/authorize', { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify({ nonce, token }) }); if (!a.ok) throw new Error('authorize: ' + a.status); };
form.addEventListener('submit', async (e) => {
  e.preventDefault();
  pay.disabled = true; out.className = ''; out.textContent = '';
  try {
    const token = (window.token = await (mode === 'element' ? document.querySelector('tokenkeep-card') : elements).tokenize({ authorize, metadata: { order: '1001' } }));
    log.push(['token', token]);
    out.className = 'ok'; out.textContent = `Paid with ${token.brand} ending in ${token.last4}.`;
  } catch (x) { log.push(['failed', x.code, x.message, x.fields]); if (x.code !== 'incomplete') { out.className = 'bad'; out.textContent = x.message; } } finally { pay.disabled = false; }
});
