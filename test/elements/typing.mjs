// What typing, deleting and pasting make of the fields, and what the methods of an element do.
export default async function ({ world, launch, check, shop, field, frameOf, focused, holds, typeCard }) {
  const browser = await launch();
  try {
    const page = await shop(browser, `${world.shop}/`), frame = frameOf(page), at = (name) => field(page).locator(`#tk-${name}`);
    const press = async (...keys) => { for (const key of keys) await page.keyboard.press(key); };
    const select = (name, from, to = from) => at(name).evaluate((e, [a, b]) => { e.focus(); e.setSelectionRange(a, b); }, [from, to]);
    const wipe = async (name) => {
      await at(name).click();
      await press('Control+a', 'Delete');
      await holds(page, 'card', `tk-${name}`, '');
    };
    /** Whether an input gets a value, with the caret at a place when that matters. */
    const got = async (name, value, caret) => {
      const is = await at(name).evaluate((e) => [e.value, e.selectionStart]);
      return is[0] === value && (caret === undefined || is[1] === caret) ? [true] : [false, is];
    };
    const paste = (name, text) => at(name).evaluate((e, t) => { e.focus(); e.select(); document.execCommand('insertText', false, t); }, text);
    const state = () => page.evaluate(() => parts.card.state);

    await at('number').click();
    await page.keyboard.type('424242424');
    check('groups of four', ...(await got('number', '4242 4242 4')));
    await select('number', 2);
    await page.keyboard.type('9');
    check('a digit in the middle keeps the caret', ...(await got('number', '4294 2424 24', 3)));
    await select('number', 5);
    await press('Backspace');
    check('backspace over a gap deletes the digit before it', ...(await got('number', '4292 4242 4', 3)));
    await select('number', 4);
    await press('Delete');
    check('delete over a gap deletes the digit after it', ...(await got('number', '4292 2424', 4)));
    await select('number', 4);
    await page.keyboard.type('7');
    check('typing at a gap', ...(await got('number', '4292 7242 4', 6)));
    await select('number', 2, 8);
    await press('Delete');
    check('a selection over gaps is deleted', ...(await got('number', '4224')));
    for (const [text, want] of [['4242-4242 4242 4242', '4242 4242 4242 4242'], ['４２４２\u0664\u0662\u0664\u0662', '4242 4242']]) {
      await wipe('number');
      await paste('number', text);
      check(`paste of ${text.length} characters`, ...(await got('number', want)));
    }
    await wipe('number');
    await page.keyboard.type('378282246310005');
    await focused(page, 'card', 'tk-expiry');
    check('american express: groups of 4, 6 and 5, then the date', ...(await got('number', '3782 822463 10005')));
    check('the brand is told', (await state()).brand === 'american-express');
    await at('cvc').click();
    await page.keyboard.type('12345');
    check('american express: a code of four digits', ...(await got('cvc', '1234')));
    check('and its hint', (await at('cvc').getAttribute('placeholder')) === '4 digits');
    await wipe('number');
    await page.keyboard.type('4242');
    check('the code is cut when the brand has three digits', ...(await got('cvc', '123')));
    await wipe('number');
    await page.keyboard.type('30569309025904');
    check('diners: groups of 4, 6 and 4', ...(await got('number', '3056 930902 5904')));
    await wipe('cvc');
    for (const [keys, want] of [['1', '1'], ['2', '02 / '], ['12', '12 / '], ['13', '01 / 3'], ['1/', '01 / '], ['1/30', '01 / 30'], ['0', '0'], ['1230', '12 / 30'], ['12/30', '12 / 30'], ['12/20', '12 / 20'], ['12/203', '12 / 203'], ['12/2030', '12 / 30'], ['122031', '12 / 31']]) {
      await wipe('expiry');
      await page.keyboard.type(keys);
      check(`expiry: ${keys} is ${want}`, ...(await got('expiry', want)));
    }
    // A browser that fills in says "replacement" or nothing.
    for (const [text, want] of [['12/2030', '12 / 30'], ['2030-12', '12 / 30'], ['1/30', '01 / 30'], ['12.30', '12 / 30'], ['122030', '12 / 30']]) {
      for (const inputType of ['insertFromPaste', 'insertReplacementText', '']) {
        await wipe('expiry');
        await at('expiry').evaluate((e, [t, type]) => { e.value = t; e.dispatchEvent(type ? new InputEvent('input', { inputType: type, bubbles: true }) : new Event('input', { bubbles: true })); }, [text, inputType]);
        check(`expiry: ${text} by ${inputType || 'autofill'}`, ...(await got('expiry', want)));
      }
    }
    await wipe('expiry');
    await page.keyboard.type('12');
    await press('Backspace');
    check('backspace behind the gap of a date', /^(12|1)$/.test(await at('expiry').inputValue()));
    await press('Backspace');
    check('and again', ['1', ''].includes(await at('expiry').inputValue()));
    for (const [keys, code] of [['0121', 'expiry_past'], ['0031', 'expiry_invalid']]) {
      await wipe('expiry');
      await page.keyboard.type(keys);
      await page.waitForFunction((c) => parts.card.state.errors.expiry?.code === c, code);
      check(`expiry: ${keys} is ${code}`, (await at('expiry').getAttribute('aria-invalid')) === 'true');
    }
    const tree = await frame.locator('body').ariaSnapshot();
    check('names for readers', ['Card number', 'Expiration date', 'Security code'].every((name) => tree.includes(`textbox "${name}"`)), tree);

    await page.evaluate(() => parts.card.clear());
    await page.waitForFunction(() => parts.card.state.empty);
    check('clear', ...(await got('number', '')));
    await page.locator('.pay').click();
    await focused(page, 'card', 'tk-number');
    check('the first wrong field gets the focus', true);
    await page.evaluate(() => { parts.card.unmount(); parts.card.mount('#fields'); return parts.card.ready(); });
    check('mounted again: empty', (await at('number').inputValue()) === '');
    // A node that is moved loads its frame again, on a new port.
    const loads = page.evaluate(() => new Promise((resolve) => {
      parts.card.on('ready', resolve);
      document.querySelector('form').append(document.querySelector('iframe'));
    }));
    await loads;
    await at('number').click();
    await page.keyboard.type('4242');
    await page.waitForFunction(() => parts.card.state.brand === 'visa');
    check('a frame that was moved works on a new port', true);
    await page.context().close();

    for (let round = 0; round < 3; round++) { // the next frame takes the keys
      const split = await shop(browser, `${world.shop}/?mode=split`);
      await typeCard(split, true, '378282246310005', '1230', '1234');
      const all = [];
      for (const kind of ['number', 'expiry', 'cvc']) all.push(await field(split, kind).locator('input').inputValue());
      check('typing goes on across frames', all.join('|') === '3782 822463 10005|12 / 30|1234', all);
      await split.context().close();
    }
  } finally {
    await browser.close();
  }
}
