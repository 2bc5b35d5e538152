// Frames beside each other, and fonts that a page brings.
import opentype from 'opentype.js';

/** A font whose glyphs for some characters are very tall. */
function font(characters, ascender) {
  const box = () => { const p = new opentype.Path(); p.moveTo(0, 0); p.lineTo(500, 0); p.lineTo(500, 3000); p.lineTo(0, 3000); p.close(); return p; };
  const glyphs = [new opentype.Glyph({ name: '.notdef', unicode: 0, advanceWidth: 600, path: new opentype.Path() }), ...[...characters].map((c) => new opentype.Glyph({ name: `g${c}`, unicode: c.charCodeAt(0), advanceWidth: 600, path: box() }))];
  return [...new Uint8Array(new opentype.Font({ familyName: 'leak', styleName: 'Regular', unitsPerEm: 1000, ascender, descender: -200, glyphs }).toArrayBuffer())];
}

export default async function ({ world, launch, check, shop, field, frameOf, typeCard, holds }) {
  const browser = await launch();
  /** Makes a frame as a page without the loader would, and keeps what it says in window.got. */
  const embed = (page, key, kind, group, options = {}) => page.evaluate(async ([vault, key, kind, group, options]) => {
    const f = document.createElement('iframe');
    f.src = `${vault}/elements/v1/${key}/${kind}`;
    f.style.cssText = 'width:400px;height:300px';
    const loaded = new Promise((resolve) => { f.onload = resolve; });
    document.body.prepend(f);
    await loaded;
    const { port1, port2 } = new MessageChannel();
    window.got = [];
    window.port = port1;
    port1.onmessage = (e) => got.push(e.data);
    const fonts = options.fonts?.map(({ family, bytes }) => ({ family, data: Uint8Array.from(bytes).buffer }));
    f.contentWindow.postMessage({ tokenkeep: 'init', version: 1, group, options: { ...options, fonts } }, vault, [port2]);
  }, [world.vault, key, kind, group, options]);
  try {
    {
      const page = await shop(browser, `${world.loose}/?mode=split`, { hasty: true });
      await typeCard(page, true, '4000056655665556', '1230', '987');
      await page.evaluate(() => parts.cvc.clear());
      await page.waitForFunction(() => parts.cvc.state.empty);
      await page.locator('.pay').click();
      await page.waitForFunction(() => log.some((l) => l[0] === 'failed'));
      const failed = await page.evaluate(() => log.find((l) => l[0] === 'failed'));
      check('an empty field in another frame is named', failed[1] === 'incomplete' && failed[3].join() === 'cvc', failed);
      await embed(page, world.other, 'number', await page.evaluate(() => elements.group));
      await page.waitForFunction(() => got.some((m) => m.type === 'ready'));
      await page.evaluate(() => port.postMessage({ type: 'tokenize', id: 'x', fields: ['number', 'expiry', 'cvc'] }));
      await page.waitForFunction(() => got.some((m) => m.type === 'done'));
      const error = await page.evaluate(() => got.find((m) => m.type === 'done').error);
      check('fields do not respond to the number frame of another application', error.code === 'not_ready' && error.fields.join() === 'expiry,cvc', error);
      await page.context().close();
    }
    const tall = font('4', 5000), base = font('012356789/ MYCV', 800);
    for (const rules of [{}, { input: { lineHeight: 'normal' } }, { label: { lineHeight: 'normal' }, error: { lineHeight: 'normal' } }]) {
      const page = await shop(browser, `${world.loose}/?mode=none`);
      await embed(page, world.key, 'card', 'g', { appearance: { variables: { fontFamily: 'base, leak' }, rules }, fonts: [{ family: 'base', bytes: base }, { family: 'leak', bytes: tall }] });
      await page.waitForFunction(() => got.some((m) => m.type === 'ready'));
      await frameOf(page).waitForFunction(() => [...document.fonts].length === 2 && [...document.fonts].every((f) => f.status === 'loaded'));
      check('fonts arrive as bytes', true);
      const height = () => frameOf(page).evaluate(() => document.body.getBoundingClientRect().height);
      await field(page).locator('#tk-number').click();
      await page.keyboard.type('5');
      await holds(page, 'card', 'tk-number', '5');
      const before = await height();
      await page.keyboard.type('4');
      await holds(page, 'card', 'tk-number', '54');
      check('no height depends on a digit', (await height()) === before, [before, await height()]);
      await page.context().close();
    }
  } finally {
    await browser.close();
  }
}
