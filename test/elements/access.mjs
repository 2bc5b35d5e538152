// Accessibility, languages, keyboard and sizes; and pictures to look at.
import fs from 'node:fs';
import path from 'node:path';

const axe = fs.readFileSync(new URL('./node_modules/axe-core/axe.min.js', import.meta.url), 'utf8');

export default async function ({ world, launch, check, shop, field, frameOf, focused, typeCard }) {
  const browser = await launch();
  const shoot = (page, name) => world.shots && page.screenshot({ path: path.join(world.shots, `${name}.png`) });
  const violations = async (frame) => {
    await frame.evaluate(axe);
    return frame.evaluate(async () => (await window.axe.run(document, { resultTypes: ['violations'] })).violations.map((v) => `${v.id}: ${v.nodes.map((n) => n.html).join(' ')}`));
  };
  // A frame is part of a page, which has the headings and landmarks.
  const ofPages = /^(landmark-one-main|page-has-heading-one|region):/;
  const accessible = async (name, page, kind) => {
    // Frames are transparent: contrast is that against the form of the shop.
    const around = await page.evaluate(() => getComputedStyle(document.querySelector('form')).backgroundColor);
    await frameOf(page, kind).evaluate((color) => { document.documentElement.style.backgroundColor = color; }, around);
    const found = (await violations(frameOf(page, kind))).filter((v) => !ofPages.test(v));
    check(`axe finds nothing: ${name}`, found.length === 0, found);
  };
  try {
    {
      const page = await shop(browser, `${world.shop}/`, { viewport: { width: 960, height: 640 }, deviceScaleFactor: 1.5 });
      await shoot(page, '1-empty');
      await accessible('empty', page, 'card');
      const frame = frameOf(page), number = field(page).locator('#tk-number');
      check('labels, types and autofill', await frame.evaluate(() => ['number', 'expiry', 'cvc'].map((n) => { const i = document.getElementById(`tk-${n}`); return [i.labels[0].textContent, i.inputMode, i.autocomplete].join(); }).join('|'))
        === 'Card number,numeric,cc-number|Expiration date,numeric,cc-exp|Security code,numeric,cc-csc');
      check('the frame has a title', (await page.locator('iframe').getAttribute('title')) === 'Secure card form');
      await page.locator('#email').click();
      const at = async () => { const id = await page.evaluate(() => document.activeElement.className || document.activeElement.tagName); return id === 'IFRAME' ? frame.evaluate(() => document.activeElement.id) : id; };
      const order = [];
      for (const key of ['Tab', 'Tab', 'Tab', 'Tab', 'Shift+Tab']) {
        const before = await at();
        await page.keyboard.press(key);
        let now = await at();
        while (now === before || now === '' || now === 'BODY') { // the focus moves between processes
          await page.evaluate(() => new Promise(requestAnimationFrame));
          now = await at();
        }
        order.push(now);
      }
      check('Tab goes through the fields and out again', order.join() === 'tk-number,tk-expiry,tk-cvc,pay,tk-cvc', order);
      await page.evaluate(() => parts.card.focus('cvc'));
      await focused(page, 'card', 'tk-cvc');
      await number.click();
      await page.keyboard.type('37828224');
      await shoot(page, '2-typing-amex');
      await page.keyboard.press('Control+a');
      await page.keyboard.type('4242424242424241');
      await page.waitForFunction(() => parts.card.state.errors.number?.code === 'number_invalid');
      check('an error is announced', await frame.evaluate(() => { const i = document.getElementById('tk-number'), e = document.getElementById(i.getAttribute('aria-describedby')); return i.getAttribute('aria-invalid') === 'true' && e.getAttribute('aria-live') === 'polite' && e.textContent !== ''; }));
      const height = () => page.locator('iframe').evaluate((e) => e.clientHeight);
      const before = await height();
      await page.locator('.pay').click();
      await page.waitForFunction(() => log.some((l) => l[0] === 'failed'));
      await page.waitForFunction((h) => document.querySelector('iframe').clientHeight > h, before);
      await shoot(page, '3-error');
      await accessible('errors', page, 'card');
      await page.evaluate(() => parts.card.clear());
      await page.waitForFunction(() => parts.card.state.empty);
      await typeCard(page, false, '4242424242424242', '1230', '123');
      await shoot(page, '4-complete');
      await page.keyboard.press('Enter');
      await page.waitForFunction(() => window.token);
      check('Enter submits', true);
      await page.evaluate(() => parts.card.setDisabled(true));
      await frame.waitForFunction(() => document.getElementById('tk-number').disabled);
      await page.context().close();
    }
    for (const [name, query, options] of [
      ['5-dark', '?theme=auto', { colorScheme: 'dark', deviceScaleFactor: 1.5 }], ['6-mobile', '', { viewport: { width: 390, height: 720 }, isMobile: true, hasTouch: true, deviceScaleFactor: 2 }],
      ['7-split-rtl', '?mode=split&dir=rtl', {}], ['8-line', '?mode=line', {}], ['9-zoomed', '', { viewport: { width: 320, height: 640 }, deviceScaleFactor: 4 }],
    ]) {
      const page = await shop(browser, `${world.shop}/${query}`, options);
      await shoot(page, name);
      for (const kind of name === '7-split-rtl' ? ['number', 'expiry', 'cvc'] : ['card']) {
        await accessible(`${name} ${kind}`, page, kind);
        check(`${name} ${kind}: nothing sticks out`, await frameOf(page, kind).evaluate(() => document.documentElement.scrollWidth <= document.documentElement.clientWidth));
      }
      if (name === '5-dark') check('dark', await frameOf(page).evaluate(() => document.documentElement.classList.contains('dark')));
      if (name === '7-split-rtl') check('right to left', await frameOf(page, 'number').evaluate(() => { const s = getComputedStyle(document.querySelector('input')); return document.dir + s.direction + s.textAlign; }) === 'rtlltrright');
      if (name === '9-zoomed') check('zoomed to 400 %: one column', await frameOf(page).evaluate(() => getComputedStyle(document.querySelector('.tk-grid')).gridTemplateColumns.split(' ').length) === 1);
      await page.context().close();
    }
    for (const [locale, label] of Object.entries({ en: 'Card number', 'de-AT': 'Kartennummer', fr: 'Numéro de carte', es: 'Número de tarjeta', 'pt-BR': 'Número do cartão', ja: 'カード番号', xx: 'Card number' })) {
      const page = await shop(browser, `${world.shop}/?more=${encodeURIComponent(JSON.stringify({ locale, texts: { cvc: 'CVV' } }))}`);
      check(`texts: ${locale}`, await frameOf(page).evaluate(() => [...document.querySelectorAll('label')].map((l) => l.textContent).filter((_, i) => i !== 1).join()) === `${label},CVV`);
      await page.context().close();
    }
    const calm = await shop(browser, `${world.shop}/`, { reducedMotion: 'reduce' });
    check('reduced motion: no transition', await frameOf(calm).evaluate(() => getComputedStyle(document.querySelector('input')).transitionDuration) === '0s');
    await calm.context().close();
  } finally {
    await browser.close();
  }
}
