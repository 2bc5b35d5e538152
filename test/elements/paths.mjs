// One path through each element.
export default async function ({ world, launch, check, shop, field, frameOf, holds, focused, typeCard, api }) {
  const browser = await launch();
  try {
    for (const [mode, number, brand] of [['card', '4242424242424242', 'visa'], ['split', '378282246310005', 'american-express'], ['line', '5555555555554444', 'mastercard'], ['element', '4242424242424242', 'visa']]) {
      const page = await shop(browser, `${world.shop}/?mode=${mode}`);
      await typeCard(page, mode === 'split', number, '1230', brand === 'american-express' ? '1234' : '123');
      await page.locator('.pay').click();
      await page.waitForFunction(() => document.querySelector('output').textContent);
      const token = await page.evaluate(() => window.token);
      check(`${mode}: the card is a token`, token?.brand === brand && token.last4 === number.slice(-4), { token, said: page.said, log: await page.evaluate(() => window.log) });
      if (token) {
        const stored = await api('GET', `/tokens/${token.id}`);
        check(`${mode}: the vault has the card`, stored.data?.number === number && stored.data.expiration_month === 12 && stored.data.expiration_year === 2030, { type: stored.type });
      }
      check(`${mode}: the browser does not complain`, page.said.filter((s) => !s.includes('Unrecognized feature')).length === 0, page.said); // a newer browser may not know a feature that the policy turns off
      const calls = page.wire.filter((r) => r.url() === `${world.vault}/tokens`);
      check(`${mode}: the frame with the number sends it`, calls.length === 1 && calls[0].frame().url().endsWith(mode === 'split' ? '/number' : '/card'), calls.map((r) => r.frame().url()));
      await page.context().close();
    }
    for (const [kind, options, typed, type, want] of [
      ['bank', {}, [['routing', '021000021'], ['account', '000123456789']], 'bank', { routing_number: '021000021', account_number: '000123456789' }],
      ['iban', {}, [['iban', 'de89370400440532013000']], 'token', 'DE89370400440532013000'],
      ['text', { format: 'ssn' }, [['text', '123456789']], 'social_security_number', '123-45-6789'],
      ['text', {}, [['text', 'AB 12-c']], 'token', 'AB 12-c'],
    ]) {
      const page = await shop(browser, `${world.shop}/?mode=none`);
      await page.evaluate(([k, o]) => (parts.other = elements.create(k, o).mount('#fields')).ready(), [kind, options]);
      for (const [name, text] of typed) {
        await field(page, kind).locator(`#tk-${name}`).click();
        await page.keyboard.type(text);
      }
      await page.waitForFunction(() => parts.other.state.complete);
      const token = await page.evaluate(() => elements.tokenize({ authorize }).catch((e) => ({ code: e.code })));
      const stored = token.id ? await api('GET', `/tokens/${token.id}`) : {};
      check(`${kind}: the value is a token`, stored.type === type && JSON.stringify(stored.data) === JSON.stringify(want), { token, type: stored.type, said: page.said });
      await page.context().close();
    }
    const id = 'card-to-show';
    await api('POST', '/tokens', { id, type: 'card', data: { number: '4000056655665556', expiration_month: 7, expiration_year: 2031 } });
    const page = await shop(browser, `${world.shop}/?mode=none`);
    const shown = await page.evaluate(async (token) => {
      window.shown = elements.create('reveal').mount('#fields');
      return window.shown.reveal({ token, authorize: (nonce) => authorize(nonce, token) }).catch((e) => e.code);
    }, id);
    check('reveal: its holder sees the card', shown.id === id && (await field(page, 'reveal').locator('b').textContent()) === '4000 0566 5566 5556', shown);
    check('reveal: no button without copy', (await field(page, 'reveal').locator('button').count()) === 0);
    check('reveal: the page does not see it', !(await page.content()).replace(/\s/g, '').includes('05665566'));
    await page.context().close();
  } finally {
    await browser.close();
  }
}
