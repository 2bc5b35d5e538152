// A card that is shown to its holder: the page learns nothing of it, and it disappears.
export default async function ({ world, launch, check, shop, field, frameOf, api }) {
  const browser = await launch();
  const PAN = '4000056655665556', id = 'holders-card', other = 'another-card';
  for (const [token, number] of [[id, PAN], [other, '3566002020360505']]) await api('POST', '/tokens', { id: token, type: 'card', data: { number, expiration_month: 7, expiration_year: 2031 } });
  const spy = () => {
    if (location.hostname !== 'localhost') return;
    window.seen = [];
    const Channel = window.MessageChannel;
    window.MessageChannel = function () {
      const c = new Channel();
      c.port1.addEventListener('message', (e) => window.seen.push(JSON.stringify(e.data)));
      return c;
    };
  };
  const show = (page, token, more = {}) => page.evaluate(async ([token, more]) => {
    window.hidden = 0;
    window.shown?.unmount();
    window.shown = elements.create('reveal').mount('#fields');
    shown.on('hidden', () => window.hidden++);
    return shown.reveal({ token, ...more, authorize: (nonce) => authorize(nonce, more.instead ?? token) }).catch((e) => ({ code: e.code }));
  }, [token, more]);
  try {
    const page = await shop(browser, `${world.loose}/?mode=none`, { init: spy, permissions: ['clipboard-read', 'clipboard-write'], viewport: { width: 960, height: 640 } });
    const result = await show(page, id, { copy: true });
    const text = () => frameOf(page, 'reveal').evaluate(() => document.body.textContent);
    check('the holder sees number and date', (await text()).includes('4000 0566 5566 5556') && (await text()).includes('Expires 07 / 31'), result);
    const all = await page.evaluate(() => JSON.stringify([seen, document.documentElement.outerHTML, performance.getEntries()]));
    check('the page sees neither digits nor the session', !/40000566|05665566|55665556|_sess_/.test(all.replace(/\s/g, '')));
    await field(page, 'reveal').locator('button').click();
    await frameOf(page, 'reveal').waitForFunction(() => document.querySelector('button').textContent === 'Copied');
    check('the card is copied when its holder asks', (await frameOf(page, 'reveal').evaluate(() => document.hasFocus())) === true);
    if (world.shots) await page.screenshot({ path: `${world.shots}/10-reveal.png` });

    // Another tab comes to the front: the frame is told by the browser, and hides the card.
    await frameOf(page, 'reveal').evaluate(() => {
      Object.defineProperty(document, 'hidden', { value: true, configurable: true });
      document.dispatchEvent(new Event('visibilitychange', { bubbles: true }));
    });
    await page.waitForFunction(() => window.hidden === 1);
    check('a change of tabs hides the card', !/\d{4}/.test(await text()), 'it is shown');

    const heights = [];
    for (const token of [id, other]) {
      await page.evaluate(() => { seen.length = 0; });
      await show(page, token);
      heights.push(await page.evaluate(() => seen.map((s) => JSON.parse(s)).filter((m) => m.type === 'size').map((m) => m.height).join()));
    }
    check('the height does not depend on the digits', heights[0] === heights[1] && heights[0] !== '', heights);
    await page.evaluate(() => shown.clear());
    await page.waitForFunction(() => window.hidden === 1);
    check('clear hides the card', !/\d{4}/.test(await text()));

    check('a session for another card shows nothing', ['not_found', 'not_allowed'].includes((await show(page, id, { instead: other })).code));
    check('an unknown token', ['not_found', 'not_allowed'].includes((await show(page, 'unknown-card')).code));
    check('without authorize', (await page.evaluate((token) => shown.reveal({ token, session: 'key_x' }).catch((e) => e.code), id)) === 'wrong_call');

    // The page shows one card after another in the same frame.
    await show(page, id);
    check('the digits cannot be dragged', await frameOf(page, 'reveal').evaluate(() => !document.querySelector('b').dispatchEvent(new DragEvent('dragstart', { bubbles: true, cancelable: true }))));
    const refused = await page.evaluate((token) => shown.reveal({ token, authorize: () => Promise.reject(new Error('no')) }).catch((e) => e.message), other);
    await page.waitForFunction(() => window.hidden === 1);
    check('a reveal hides what the one before showed', refused === 'no' && !/\d{4}/.test(await text()), refused);
    const cleared = await page.evaluate((token) => shown.reveal({ token, authorize: (nonce) => authorize(nonce, token).then(() => shown.clear()) }).catch((e) => e.code), id);
    check('a reveal that was under way when the page cleared shows nothing', cleared === 'cleared' && !/\d{4}/.test(await text()), cleared);
    await page.evaluate(() => {
      const send = MessagePort.prototype.postMessage;
      MessagePort.prototype.postMessage = function (m, ...rest) { return send.call(this, m.type === 'reveal' ? { ...m, session: 'key_x' } : m, ...rest); };
    });
    const own = await show(page, id);
    check('a session of the page is not used', own.id === id && (await text()).includes('5556'), own);
    await page.context().close();

    // Time, which passes when the test says so.
    const timed = await shop(browser, `${world.loose}/?mode=none`, { init: () => {
      if (!location.pathname.endsWith('/reveal')) return;
      const real = window.setTimeout;
      window.limits = [];
      window.setTimeout = (f, ms, ...more) => (ms >= 5000 && ms <= 60_000 ? (window.limits.push([f, ms]), 0) : real(f, ms, ...more));
    } });
    for (const [seconds, ms] of [[undefined, 60_000], [30, 30_000], [600, 60_000], [1, 60_000]]) {
      await show(timed, id, { seconds });
      const limit = await frameOf(timed, 'reveal').evaluate(() => { const last = window.limits.at(-1); last[0](); return last[1]; });
      await timed.waitForFunction(() => window.hidden === 1);
      check(`shown for at most ${ms / 1000} s when the page asks for ${seconds}`, limit === ms, limit);
    }
    await timed.context().close();
  } finally {
    await browser.close();
  }
}
