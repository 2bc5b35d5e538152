// Opens the console in a browser, and prints a line for each check. Waits end by their event: the time limit of the test in
// Go is the only one.
import fs from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import { chromium } from 'playwright-core';

const world = JSON.parse(fs.readFileSync(0, 'utf8'));
const axe = fs.readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const flags = [
  '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync',
  // No name leads anywhere: requests to other machines would be seen to fail.
  '--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1',
];

export const check = (name, ok, got = null) => console.log(JSON.stringify({ name, ok: Boolean(ok), got }));

/** Opens a browser page for a person, and notes what it must not do. */
export async function person(browser, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1440, height: 900 }, reducedMotion: 'reduce', ...options });
  context.setDefaultTimeout(0);
  await context.addInitScript(() => {
    window.violations = [];
    document.addEventListener('securitypolicyviolation', (e) => window.violations.push(`${e.effectiveDirective} ${e.blockedURI} ${e.sample}`));
  });
  const page = await context.newPage();
  page.elsewhere = [];
  page.errors = [];
  page.asked = [];
  page.on('request', (r) => {
    page.asked.push(`${r.method()} ${r.url()}`);
    if (!r.url().startsWith(`${world.vault}/`) && !r.url().startsWith(`blob:${world.vault}/`)) page.elsewhere.push(r.url());
  });
  page.on('pageerror', (e) => page.errors.push(String(e)));
  return page;
}

/** Signs in with the link of a role. */
export async function signIn(page, role) {
  await page.goto(`${world.vault}/console/sign-in#code=${encodeURIComponent(world.links[role])}`);
  await page.getByRole('navigation', { name: 'Main' }).waitFor({ state: 'attached' });
}

/** Opens a page of the console, and waits for its heading. */
export async function go(page, to, heading) {
  await page.goto(`${world.vault}/console${to}`);
  await page.getByRole('heading', { level: 1, name: heading }).waitFor();
}

/** Waits until nothing is loading, then checks that the page is accessible, and takes a picture where one is wanted. */
export async function audit(page, name) {
  await page.waitForFunction(() => !document.querySelector('[aria-busy="true"], .mantine-Skeleton-root, [data-loading="true"]'));
  await page.evaluate(axe);
  const found = await page.evaluate(async () => (await window.axe.run({ runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa'] })).violations
    .filter((v) => ['serious', 'critical'].includes(v.impact)).map((v) => `${v.id}: ${v.nodes.map((n) => n.target.join(' ')).slice(0, 3).join(', ')}`));
  check(`${name} is accessible`, found.length === 0, found);
  check(`${name} keeps to its policy`, (await page.evaluate(() => window.violations)).length === 0, await page.evaluate(() => window.violations));
  const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  check(`${name} is no wider than the screen`, wide <= 0, wide);
  if (world.shots) {
    fs.mkdirSync(world.shots, { recursive: true });
    await page.screenshot({ path: path.join(world.shots, `${name.replace(/\W+/g, '-')}.png`) });
  }
}

/** What a browser stores for the origin, as one text. */
export async function stored(page) {
  const inside = await page.evaluate(async () => JSON.stringify([
    Object.entries(localStorage), Object.entries(sessionStorage), document.cookie, await caches.keys(), (await indexedDB.databases()).map((d) => d.name), history.state, location.href,
  ]));
  return inside;
}

const browser = await chromium.launch({ executablePath: world.chromium, args: flags, timeout: 0 });
const { default: suite } = await import(`./${world.suite}.mjs`);
try {
  await suite({ world, browser, check, person, signIn, go, audit, stored });
} catch (e) {
  if (world.shots) for (const context of browser.contexts()) for (const page of context.pages()) await page.screenshot({ path: path.join(world.shots, 'stopped-here.png') });
  throw e;
} finally {
  await browser.close();
}
