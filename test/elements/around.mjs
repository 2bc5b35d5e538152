// What surrounds the fields: React, a changed loader, popups, pages inside pages, the cache of pages, and values that are filled in.
import { createRequire } from 'node:module';
import { fileURLToPath } from 'node:url';

const path = (name) => fileURLToPath(new URL(name, import.meta.url));
const { build } = createRequire(path('../../web/packages/package.json'))('esbuild');

/** A page with React's own checks, which mount everything twice. */
async function reactPage({ key, vault }) {
  const contents = `
    import { StrictMode, createElement as h, useRef, useState } from 'react';
    import { createRoot } from 'react-dom/client';
    import { BankAccount, Card, Iban, TextField, useElements } from '@tokenkeep/react';
    const kinds = { Card, BankAccount, Iban, TextField };
    function App() {
      const elements = useElements({ key: '${key}', vault: '${vault}' }), [kind, set] = useState('Card'), [state, tell] = useState(null), ref = useRef(null);
      window.app = { elements, set, ref };
      return h('div', null, kinds[kind] && h(kinds[kind], { key: kind, elements, ref, onChange: tell, ...(kind === 'TextField' && { format: 'ssn' }) }), h('pre', { id: 'state' }, JSON.stringify(state)));
    }
    createRoot(document.querySelector('#fields')).render(h(StrictMode, null, h(App)));`;
  const alias = { '@tokenkeep/react': path('../../web/packages/react/src/index.ts'), '@tokenkeep/elements': path('../../web/elements/src/index.ts') };
  const made = await build({ stdin: { contents, resolveDir: path('.'), loader: 'js' }, bundle: true, write: false, format: 'iife', target: 'es2022', alias, nodePaths: [path('node_modules')], define: { 'process.env.NODE_ENV': '"development"' } });
  return made.outputFiles[0].text;
}

export default async function ({ world, launch, check, open, shop, field, frameOf, holds, typeCard, api }) {
  const browser = await launch();
  try {
    { // React
      const page = await open(browser, `${world.loose}/?mode=none`);
      await page.addScriptTag({ content: await reactPage(world) });
      for (const [component, kind, typed] of [['Card', 'card', [['number', '42424242424242421230123']]], ['BankAccount', 'bank', [['routing', '021000021'], ['account', '000123456789']]], ['Iban', 'iban', [['iban', 'DE89370400440532013000']]], ['TextField', 'text', [['text', '123456789']]]]) {
        await page.waitForFunction(() => window.app);
        await page.evaluate((c) => app.set(c), component);
        for (const [name, text] of typed) {
          await field(page, kind).locator(`#tk-${name}`).click();
          await page.keyboard.type(text);
        }
        await page.waitForFunction(() => document.querySelector('#state').textContent.includes('"complete":true') && app.ref.current?.state.complete);
        check(`React, ${component}: one frame under StrictMode`, (await page.locator('iframe').count()) === 1);
        const token = await page.evaluate(() => app.elements.tokenize({ authorize }).catch((e) => ({ code: e.code })));
        check(`React, ${component}: a token`, token.id && (await api('GET', `/tokens/${token.id}`)).id === token.id, token);
      }
      await page.evaluate(() => app.set(''));
      await page.waitForFunction(() => document.querySelectorAll('iframe').length === 0);
      check('React: a component that is gone takes its frame along', true);
      await page.context().close();
    }
    { // Styles of all states, and a loader that was changed on the way.
      const color = Object.fromEntries(['input', 'input:hover', 'input:focus', 'input:invalid', 'input:complete', 'input:disabled', 'placeholder', 'label', 'error'].map((s) => [s, { color: '#123456' }]));
      const page = await shop(browser, `${world.shop}/?look=${encodeURIComponent(JSON.stringify({ rules: color }))}`);
      check('all nine states can be styled', await page.evaluate(() => !log.some((l) => l[1] === 'refused')) && await frameOf(page).evaluate(() => getComputedStyle(document.querySelector('label')).color === 'rgb(18, 52, 86)'));
      await page.context().close();
      const context = await browser.newContext(), changed = await context.newPage(), said = [];
      context.setDefaultTimeout(0);
      changed.on('console', (m) => said.push(m.text()));
      await changed.route('**/elements-*.js', async (route) => { const response = await route.fetch(); await route.fulfill({ response, body: `${await response.text()}\n//x` }); });
      await changed.goto(`${world.loose}/?mode=none`);
      check('a changed loader is refused', await changed.evaluate(() => typeof Tokenkeep === 'undefined') && said.some((s) => /integrity/.test(s)), said);
      await context.close();
    }
    { // A field page in a window of its own, in a sandbox, and inside a page of a stranger.
      const page = await shop(browser, `${world.loose}/?mode=none`), address = `${world.vault}/elements/v1/${world.key}/card`;
      const opened = page.context().waitForEvent('page');
      await page.evaluate((url) => { window.popup = window.open(url); }, address);
      await (await opened).waitForLoadState();
      await page.waitForFunction(() => popup.closed); // the browser cuts the opener off
      const heard = await page.evaluate(() => {
        const { port1, port2 } = new MessageChannel();
        window.got = 0;
        port1.onmessage = () => window.got++;
        try { popup.postMessage({ tokenkeep: 'init', version: 1, group: 'g', options: {} }, '*', [port2]); } catch { /* it is gone */ }
        return popup.length;
      });
      check('a field page in a window of its own is cut off from its opener', heard === 0 && (await page.evaluate(() => window.got)) === 0, heard);
      await page.evaluate(async (url) => {
        const f = document.createElement('iframe');
        f.sandbox = 'allow-scripts';
        f.src = url;
        const loaded = new Promise((resolve) => { f.onload = resolve; });
        document.body.append(f);
        await loaded;
        const { port1, port2 } = new MessageChannel();
        port1.onmessage = () => window.got++;
        f.contentWindow.postMessage({ tokenkeep: 'init', version: 1, group: 'g', options: {} }, '*', [port2]);
      }, address);
      const sandboxed = page.frames().find((f) => f.url() === address);
      await sandboxed.evaluate(() => new Promise((resolve) => { requestAnimationFrame(() => setTimeout(resolve)); }));
      check('a field page in a sandbox does not start', (await page.evaluate(() => window.got)) === 0);
      await page.context().close();
      const stranger = await open(browser, `${world.stranger}/?mode=none`);
      await stranger.evaluate((url) => { const f = document.createElement('iframe'); f.src = url; document.body.append(f); }, `${world.loose}/`);
      while (!stranger.said.some((s) => /frame-ancestors/.test(s))) await stranger.waitForEvent('console');
      check('a listed page inside a page that is not listed: blocked', true);
      await stranger.context().close();
    }
    { // What a browser fills in, which has no type of input.
      const page = await shop(browser, `${world.loose}/`);
      await frameOf(page).evaluate(() => {
        for (const [name, value] of [['number', '4000056655665556'], ['expiry', '07/2031'], ['cvc', '987']]) {
          const input = document.getElementById(`tk-${name}`);
          input.value = value;
          input.dispatchEvent(new Event('input', { bubbles: true }));
        }
      });
      await page.waitForFunction(() => parts.card.state.complete);
      await holds(page, 'card', 'tk-number', '4000 0566 5566 5556');
      await holds(page, 'card', 'tk-expiry', '07 / 31');
      check('what a browser fills in is a card', true);
      await page.context().close();
    }
  } finally {
    await browser.close();
  }
  for (const cached of [false, true]) { // Back, without the cache of pages and with it, and a reload
    const other = await launch(cached ? { ignoreDefaultArgs: ['--disable-back-forward-cache'] } : {});
    try {
      const page = await shop(other, `${world.shop}/`);
      await page.evaluate(() => { window.mark = true; addEventListener('pageshow', (e) => { window.persisted = e.persisted; }); });
      await typeCard(page, false, '4000056655665556', '1230', '987');
      const session = await page.context().newCDPSession(page);
      const evaluate = async (expression) => (await session.send('Runtime.evaluate', { expression, awaitPromise: true, returnByValue: true })).result.value;
      await page.goto(`${world.shop}/blank`);
      await evaluate('history.back()').catch(() => {});
      let there = null;
      while (there !== 'ready') there = await evaluate("location.pathname === '/' && window.parts && (window.persisted === true || !window.mark) ? parts.card.ready().then(() => 'ready') : ''").catch(() => null);
      const result = await evaluate("elements.tokenize({ authorize }).catch((e) => e.code + ' ' + e.fields.join()).then((r) => [r, parts.card.state.empty, !!window.persisted])");
      check(`back, with the cache of pages: ${cached}: the fields are empty and respond`, result[0] === 'incomplete number,expiry,cvc' && result[1], result);
      if (!cached) {
        await page.reload();
        await page.evaluate(() => parts.card.ready());
        check('reload: the fields are empty', (await frameOf(page).evaluate(() => [...document.querySelectorAll('input')].map((i) => i.value).join(''))) === '');
      }
    } finally {
      await other.close();
    }
  }
}
