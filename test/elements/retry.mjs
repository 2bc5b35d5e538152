// Lost and late responses: one submit never makes two tokens.
const PRESSED = 54_321, CANCELLED = 2000; // milliseconds: the timers with these delays end when the test says so

export default async function ({ world, launch, check, shop, field, holds, typeCard, countTokens }) {
  const browser = await launch();
  const init = (delays) => {
    const real = window.setTimeout;
    window.timers = [];
    window.setTimeout = (f, ms, ...more) => (delays.includes(ms) ? (window.timers.push(f), 0) : real(f, ms, ...more));
  };
  const begin = async () => {
    const page = await shop(browser, `${world.shop}/`, { init: `(${init})([${PRESSED}, ${CANCELLED}])` });
    await typeCard(page, false, '4242424242424242', '1230', '123');
    return page;
  };
  const tokenize = (page) => page.evaluate((timeout) => elements.tokenize({ authorize, timeout }).catch((e) => ({ code: e.code })), PRESSED);
  const pattern = `${world.vault}/tokens`;
  try {
    {
      const page = await begin(), before = await countTokens();
      let lost = 0;
      await page.route(pattern, async (route) => {
        await route.fetch();
        lost++;
        await route.abort();
      });
      const first = await tokenize(page);
      check('three responses are lost: network', first.code === 'network' && lost === 3, { first, lost });
      await page.unroute(pattern);
      const second = await tokenize(page);
      check('the second try is the first one again', second.id && (await countTokens()) === before + 1, second);
      await page.route(pattern, async (route) => {
        await route.fetch();
        await route.abort();
      });
      const unknown = await tokenize(page), between = await countTokens();
      await page.unroute(pattern);
      await field(page).locator('#tk-cvc').click();
      await page.keyboard.type('x'); // changes nothing
      await holds(page, 'card', 'tk-cvc', '123');
      check('a key that changes nothing makes no new request', unknown.code === 'network' && (await tokenize(page)).id && (await countTokens()) === between, unknown);
      const third = await tokenize(page);
      check('after a success the next is a new token', third.id && third.id !== second.id && (await countTokens()) === before + 3, third);
      await page.route(pattern, (route) => route.fulfill({ status: 503, headers: { 'Retry-After': '0' }, body: '{}' }), { times: 1 });
      check('503 is tried again', (await tokenize(page)).id);
      const twice = await page.evaluate(async () => { const a = elements.tokenize({ authorize }), b = elements.tokenize({ authorize }); return [a === b, (await a).id === (await b).id]; });
      check('a second call gets the promise of the first', twice.every(Boolean), twice);
      await page.context().close();
    }
    for (const reaches of [true, false]) { // the vault has the request before the page gives up, or never
      const page = await begin(), before = await countTokens();
      let arrived, made = null;
      const held = new Promise((resolve) => { arrived = resolve; });
      const failed = page.waitForEvent('requestfailed', (r) => r.url() === pattern);
      await page.route(pattern, async (route) => {
        if (reaches) made = await (await route.fetch()).json();
        arrived(); // and no response ever comes
      }, { times: 1 });
      const first = tokenize(page);
      await held;
      await page.evaluate(() => window.timers.at(-1)());
      const result = await first;
      check('a request that takes too long: timeout', result.code === 'timeout', result);
      await failed;
      check('the frame cancelled the request', true);
      const second = await tokenize(page);
      check(`the next try after a timeout makes no second token (reached the vault: ${reaches})`, second.id && (!made || made.id === second.id) && (await countTokens()) === before + 1, { second, made: made?.id });
      await page.context().close();
    }
    for (const answers of [true, false]) { // the frame has no time to hear that the page gave up, and has the token, or hangs
      const page = await begin(), before = await countTokens();
      let arrived, release;
      const held = new Promise((resolve) => { arrived = resolve; }), released = new Promise((resolve) => { release = resolve; });
      await page.route(pattern, async (route) => {
        arrived();
        if (!answers) return; // no response ever comes
        await released;
        await route.continue();
      }, { times: 1 });
      await page.evaluate(() => {
        const send = MessagePort.prototype.postMessage;
        MessagePort.prototype.postMessage = function (m, ...rest) { if (m.type !== 'cancel') send.call(this, m, ...rest); };
      });
      const first = tokenize(page);
      await held;
      await page.evaluate(() => window.timers.at(-1)());
      if (answers) release();
      else await page.evaluate(() => window.timers.at(-1)());
      const result = await first;
      check(`a time-out while the frame ${answers ? 'has the token: the token' : 'does not respond: timeout'}`, answers ? result.id && (await countTokens()) === before + 1 : result.code === 'timeout', result);
      await page.context().close();
    }
    { // the page gives the session, and the responses are lost
      const page = await begin(), before = await countTokens();
      const session = async () => {
        const made = await (await fetch(`${world.vault}/sessions`, { method: 'POST', headers: { 'SVC-API-KEY': world.key } })).json();
        const authorized = await fetch(`${world.shop}/authorize`, { method: 'POST', body: JSON.stringify({ nonce: made.nonce }) });
        if (!authorized.ok) throw new Error(`authorize: ${authorized.status}`);
        return made.session_key;
      };
      const give = async () => page.evaluate((session) => elements.tokenize({ session }).catch((e) => ({ code: e.code })), await session());
      await page.route(pattern, async (route) => {
        await route.fetch();
        await route.abort();
      });
      const first = await give();
      await page.unroute(pattern);
      const second = await give();
      check('a retry uses the session of the first try, not another that the page gives', first.code === 'network' && second.id && (await countTokens()) === before + 1, [first, second]);
      await page.context().close();
    }
    { // a request that is cancelled while the session is not authorized yet
      const page = await begin(), before = await countTokens();
      const result = await page.evaluate(async (timeout) => {
        let asked;
        const authorizing = new Promise((resolve) => { asked = resolve; });
        const first = elements.tokenize({ authorize: () => new Promise(asked), timeout }).catch((e) => ({ code: e.code }));
        await authorizing;
        window.timers.at(-1)();
        return [await first, await elements.tokenize({ authorize }).catch((e) => ({ code: e.code }))];
      }, PRESSED);
      check('cancelled before the authorization, then one token', result[0].code === 'timeout' && result[1].id && (await countTokens()) === before + 1, result);
      const gone = await page.evaluate(async () => {
        let asked;
        const authorizing = new Promise((resolve) => { asked = resolve; });
        const first = elements.tokenize({ authorize: () => new Promise(asked) }).catch((e) => e.code);
        await authorizing;
        parts.card.unmount();
        return [await first, document.querySelectorAll('iframe').length, await elements.tokenize({ authorize }).catch((e) => e.code)];
      });
      check('unmount during a request', gone.join() === 'unmounted,0,not_mounted', gone);
      await page.context().close();
    }
  } finally {
    await browser.close();
  }
}
