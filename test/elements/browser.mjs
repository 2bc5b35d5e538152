// Opens a shop with card fields in a browser, and prints a line for each check. Waits end by their event: the time limit of
// the test in Go is the only one.
import fs from 'node:fs';
import { chromium, firefox } from 'playwright-core';

const world = JSON.parse(fs.readFileSync(0, 'utf8'));
const flags = [
  '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync', '--site-per-process',
  // No name leads anywhere: requests to other machines would be seen to fail.
  '--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost',
];

// The proxy of all that is not loopback, which Firefox never asks one for, is a port on which nobody listens.
const nowhere = { host: '127.0.0.1', port: 1 };
const preferences = {
  'network.proxy.type': 1, 'network.proxy.http': nowhere.host, 'network.proxy.http_port': nowhere.port, 'network.proxy.ssl': nowhere.host, 'network.proxy.ssl_port': nowhere.port,
  'app.update.enabled': false, 'datareporting.policy.dataSubmissionEnabled': false, 'browser.safebrowsing.malware.enabled': false, 'browser.safebrowsing.phishing.enabled': false,
};

// The driver sends keys to the process of the page, so the frames have to be in it.
const oneProcess = { ...process.env, MOZ_FORCE_DISABLE_FISSION: '1' };

/** Starts the browser of the test: Chromium, or the Firefox of Debian as it is, by WebDriver BiDi. */
export const launch = (more = {}) => (world.firefox
  ? firefox.launch({ executablePath: world.firefox, channel: 'moz-firefox', firefoxUserPrefs: preferences, env: oneProcess, timeout: 0, ...more })
  : chromium.launch({ executablePath: world.chromium, args: flags, timeout: 0, ...more }));
export const check = (name, ok, got = null) => console.log(JSON.stringify({ name, ok: Boolean(ok), got }));

/** Takes the short time limits of the fields away: a slow machine is no failure. */
function patient() {
  const later = window.setTimeout, forever = 2 ** 31 - 1, limit = AbortSignal.timeout;
  window.setTimeout = (f, ms, ...more) => later(f, ms === 2000 || ms === 15000 ? forever : ms, ...more);
  AbortSignal.timeout = () => limit.call(AbortSignal, forever);
}

/** Opens a page, and notes its requests, its console and its errors. */
export async function open(browser, url, { init, hasty = false, ...options } = {}) {
  const context = await browser.newContext({ viewport: { width: 1000, height: 640 }, ...options });
  context.setDefaultTimeout(0);
  if (!hasty) await context.addInitScript(patient);
  if (init) await context.addInitScript(init);
  const page = await context.newPage();
  page.said = [];
  page.wire = [];
  page.on('console', (m) => page.said.push(m.text()));
  page.on('pageerror', (e) => page.said.push(`pageerror ${e}`));
  page.on('request', (r) => page.wire.push(r));
  await page.goto(url);
  return page;
}

/** Opens a shop, and waits until its fields can be used. */
export async function shop(browser, url, options) {
  const page = await open(browser, url, options);
  await page.evaluate(() => Promise.all([...Object.values(window.parts), document.querySelector('tokenkeep-card')?.card].filter(Boolean).map((e) => e.ready())));
  return page;
}

export const field = (page, kind = 'card') => page.frameLocator(`iframe[src$="/${kind}"]`);
export const frameOf = (page, kind = 'card') => page.frames().find((f) => f.url().endsWith(`/${kind}`));

/** Waits until an input has a value, and returns it. */
export const holds = (page, kind, id, value) => frameOf(page, kind).waitForFunction(([i, v]) => document.getElementById(i).value === v, [id, value]);

/** Waits until the input of a frame has the focus. */
export const focused = (page, kind, id) => frameOf(page, kind).waitForFunction((i) => document.hasFocus() && document.activeElement?.id === i, id);

/** Types a card into fields of one frame, or of three. */
export async function typeCard(page, split, number, expiry, cvc) {
  const kind = (name) => (split ? name : 'card');
  await field(page, kind('number')).locator('#tk-number').click();
  await page.keyboard.type(number);
  await focused(page, kind('expiry'), 'tk-expiry');
  await page.keyboard.type(expiry);
  await focused(page, kind('cvc'), 'tk-cvc');
  await page.keyboard.type(cvc);
  await page.waitForFunction(() => [...Object.values(window.parts), document.querySelector('tokenkeep-card')?.card].filter(Boolean).every((e) => e.state.complete));
}

/** Calls the vault as the shop's server does. */
export async function api(method, path, body) {
  const answer = await fetch(world.vault + path, { method, headers: { 'SVC-API-KEY': world.private, 'Content-Type': 'application/json' }, body: body && JSON.stringify(body) });
  return answer.json();
}
export const countTokens = async () => (await api('GET', '/tokens?size=1')).pagination.total_items;

const { default: suite } = await import(`./${world.suite}.mjs`);
await suite({ world, launch, check, open, shop, field, frameOf, holds, focused, typeCard, api, countTokens });
