// The page on which developers try the fields.
import fs from 'node:fs';
import path from 'node:path';

const axe = fs.readFileSync(new URL('./node_modules/axe-core/axe.min.js', import.meta.url), 'utf8');

export default async function ({ world, launch, check, open, field, frameOf, api }) {
  const browser = await launch();
  try {
    const page = await open(browser, `${world.vault}/elements/`, { viewport: { width: 1120, height: 1060 } });
    const code = () => page.locator('#code').textContent();
    // Fields are there when the page has their first state, and these are those of the choice.
    const ready = (kind) => page.waitForFunction((k) => document.getElementById('fields').className === k && document.getElementById('state').textContent.startsWith('Your page learns'), kind);
    const stored = async () => {
      await page.waitForFunction(() => document.getElementById('state').textContent.includes(': complete'));
      await page.locator('#store').click();
      await page.waitForFunction(() => document.getElementById('result').textContent);
      const [, id] = /^Token ([\w-]+)/.exec(await page.locator('#result').textContent()) ?? [];
      return id ? api('GET', `/tokens/${id}`) : { failed: await page.locator('#result').textContent() };
    };
    await ready('card');
    await page.evaluate(axe);
    const found = await page.evaluate(async () => (await window.axe.run(document, { resultTypes: ['violations'], iframes: false })).violations.map((v) => `${v.id}: ${v.nodes.map((n) => n.html).join(' ')}`));
    check('axe finds nothing', found.length === 0, found);

    await field(page).locator('#tk-number').click();
    await page.keyboard.type('42424242424242421230123');
    const card = await stored();
    check('card: what was typed is a token', card.data?.number === '4242424242424242', { type: card.type, failed: card.failed });
    if (world.shots) { // with no key in the picture
      const code = page.locator('#code'), text = await code.textContent();
      const write = ([k, t]) => { document.querySelector('[name=key]').value = k; document.getElementById('code').textContent = t; };
      await page.evaluate(write, ['key_dev_pub_…', text.replace(world.key, 'key_dev_pub_…')]);
      await page.screenshot({ path: path.join(world.shots, 'playground.png') });
      await page.evaluate(write, [world.key, text]);
    }
    check('the code has the key and the hash of the loader', (await code()).includes(world.key) && (await code()).includes('integrity="sha384-') && (await code()).includes("fields.create('card').mount('#card');"), await code());

    // The accent and the sizes change in place: the card is still there.
    await page.locator('[name=borderRadius]').fill('20');
    await frameOf(page).waitForFunction(() => getComputedStyle(document.getElementById('tk-number')).borderRadius === '20px');
    check('corners: the fields follow, and keep what was typed', (await field(page).locator('#tk-number').inputValue()) === '4242 4242 4242 4242' && (await code()).includes("borderRadius: '20px'"), await code());

    for (const [name, value] of [['locale', 'de'], ['dir', 'rtl'], ['theme', 'dark'], ['layout', 'line'], ['preset', 'sharp']]) await page.locator(`[name=${name}]`).selectOption(value);
    await ready('card');
    const look = await frameOf(page).evaluate(() => [document.documentElement.lang, document.dir, document.documentElement.className, document.querySelector('label').textContent, getComputedStyle(document.querySelector('input')).borderTopWidth].join());
    check('language, direction, theme, layout and preset', look === 'de,rtl,dark line,Kartennummer,2px', look);
    check('the code has them', /locale: 'de'[^]*dir: 'rtl'[^]*theme: 'dark'[^]*borderWidth: '2px'[^]*layout: 'line'/.test(await code()), await code());

    await page.locator('[name=kind]').selectOption('split');
    await ready('split');
    check('three frames', (await page.locator('iframe').count()) === 3);
    await page.locator('[data-tab=react]').click();
    check('the code for React', /import \{ CardNumber, CardExpiry, CardCvc, useElements \}[^]*<CardCvc elements=\{fields\}/.test(await code()), await code());
    await page.locator('[data-tab=policy]').click();
    check('the policy of a page', (await code()).includes(`frame-src ${world.vault}/elements/v1/${world.key}/;`), await code());
    for (const [kind, typed, type] of [['bank', [['routing', '021000021'], ['account', '000123456789']], 'bank'], ['iban', [['iban', 'DE89370400440532013000']], 'token'], ['text', [['text', '123456789']], 'social_security_number']]) {
      await page.locator('[name=kind]').selectOption(kind);
      await ready(kind);
      for (const [name, text] of typed) {
        await field(page, kind).locator(`#tk-${name}`).click();
        await page.keyboard.type(text);
      }
      const token = await stored();
      check(`${kind}: what was typed is a token`, token.type === type, { type: token.type, failed: token.failed });
    }
    await page.locator('[name=key]').fill('no key');
    await page.locator('[name=kind]').selectOption('card');
    await page.waitForFunction(() => document.getElementById('state').textContent.startsWith('Enter the key'));
    check('a key that is none is said', (await page.locator('iframe').count()) === 0);
    check('the browser does not complain', page.said.filter((s) => !s.includes('Unrecognized feature')).length === 0, page.said);
    check('the page loads nothing else', page.wire.every((r) => r.url().startsWith(`${world.vault}/elements/`) || ['/tokens', '/sessions'].includes(new URL(r.url()).pathname) || r.url() === 'data:,'), page.wire.map((r) => new URL(r.url()).pathname));
    await page.context().close();
  } finally {
    await browser.close();
  }
}
