// Opens the API page as a person does, tries a call with a key, and prints
// what the browser did on the way. The test in Go says what is right.
'use strict';

const fs = require('fs');
const path = require('path');
const { chromium } = require('playwright-core');

const flags = [
  '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync',
  // No name leads anywhere: what is not this machine would be seen to fail.
  '--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1',
];

async function open(browser, world, report, options) {
  const context = await browser.newContext(options);
  context.setDefaultTimeout(0); // a busy machine is no failure: the time limit of the test in Go is the only one
  await context.addInitScript(() => {
    window.violations = [];
    document.addEventListener('securitypolicyviolation', (e) => window.violations.push(`${e.effectiveDirective} ${e.blockedURI} ${e.sourceFile}:${e.lineNumber}`));
  });
  const page = await context.newPage();
  page.on('request', (r) => report.requests.push({ method: r.method(), url: r.url(), key: Boolean(r.headers()[world.header.toLowerCase()]) }));
  page.on('requestfailed', (r) => report.failures.push(`${r.url()} ${r.failure().errorText}`));
  page.on('response', (r) => r.status() >= 400 && report.failures.push(`${r.url()} ${r.status()}`));
  page.on('console', (m) => ['error', 'warning'].includes(m.type()) && report.complaints.push(m.text()));
  page.on('pageerror', (e) => report.complaints.push(String(e)));
  await page.goto(`${world.url}/docs`);
  await page.locator('.opblock').first().waitFor();
  return page;
}

const shoot = (world, page, name) => world.shots && page.screenshot({ path: path.join(world.shots, `${name}.png`) });

// tryIt enters the key and creates the token of the example.
async function tryIt(page, world, report) {
  await page.locator('.auth-wrapper button.authorize').first().click();
  await page.locator('.modal-ux input').fill(world.key);
  await shoot(world, page, 'key');
  await page.locator('.modal-ux button[type=submit]').click();
  await page.locator('.modal-ux button.btn-done').click();

  const list = page.locator('#operations-Tokens-listTokens');
  await list.locator('.opblock-summary-control').click();
  await list.locator('tr[data-param-name=fingerprint] input').waitFor();
  report.filled = await list.locator('tr[data-param-name]').evaluateAll((rows) => rows.map((row) => {
    const field = row.querySelector('input, textarea');
    return `${row.dataset.paramName}=${field ? field.value : ''}`;
  }));
  await list.scrollIntoViewIfNeeded();
  await shoot(world, page, 'list');

  const operation = page.locator('#operations-Tokens-createToken');
  await operation.locator('.opblock-summary-control').click();
  const body = operation.locator('textarea.body-param__text');
  await body.waitFor();
  report.example = await body.inputValue();
  await shoot(world, page, 'operation');
  await operation.locator('button.execute').click();
  const live = operation.locator('.live-responses-table .response').first();
  await live.waitFor();
  report.status = (await live.locator('.response-col_status').innerText()).trim();
  report.answer = await live.locator('.response-col_description').innerText();
  report.shown = await operation.innerText();
  await live.scrollIntoViewIfNeeded();
  await shoot(world, page, 'answer');
}

async function main() {
  const world = JSON.parse(fs.readFileSync(0, 'utf8'));
  const report = { requests: [], failures: [], complaints: [], violations: [] };
  const browser = await chromium.launch({ executablePath: world.chromium, args: flags, timeout: 0 });
  try {
    const page = await open(browser, world, report, { viewport: { width: 1280, height: 900 } });
    report.title = await page.title();
    report.tags = await page.locator('.opblock-tag').evaluateAll((all) => all.map((e) => e.dataset.tag));
    report.operations = await page.locator('.opblock').count();
    await shoot(world, page, 'wide');
    await tryIt(page, world, report);
    report.violations = await page.evaluate(() => window.violations);
    report.kept = await page.evaluate(async () => JSON.stringify([
      Object.entries(localStorage), Object.entries(sessionStorage), document.cookie, location.href, history.state, window.name,
      (await indexedDB.databases()).map((d) => d.name), await caches.keys().catch(() => []),
    ]));
    report.kept += JSON.stringify(await page.context().storageState());
    report.clean = { requests: report.requests.length, failures: report.failures.length, complaints: report.complaints.length };

    // What the policy is there for: none of these may come to anything.
    report.refused = await page.evaluate(async () => {
      const before = window.violations.length;
      const script = document.createElement('script');
      const loaded = new Promise((done) => { script.onload = () => done('loaded'); script.onerror = () => done('refused'); });
      script.src = '/docs/page.js';
      document.body.append(script);
      const fetched = fetch('http://127.0.0.1:9/').then(() => 'fetched', () => 'refused');
      const ends = [await loaded, await fetched];
      while (window.violations.length < before + 2) await new Promise((next) => setTimeout(next, 50)); // they are told a little later
      return [...ends, ...window.violations.slice(before).map((v) => v.split(' ')[0]).sort()];
    });

    const again = { requests: [], failures: [], complaints: [] };
    const phone = await open(browser, world, again, { viewport: { width: 390, height: 844 }, isMobile: true, deviceScaleFactor: 2 });
    report.overflow = await phone.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
    await shoot(world, phone, 'phone');
    await phone.locator('#operations-Tokens-createToken .opblock-summary-control').click();
    await phone.locator('#operations-Tokens-createToken textarea.body-param__text').waitFor();
    await phone.locator('#operations-Tokens-createToken').scrollIntoViewIfNeeded();
    await shoot(world, phone, 'phone-operation');
    report.overflow = Math.max(report.overflow, await phone.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth));
    const dark = await open(browser, world, again, { viewport: { width: 1280, height: 900 }, colorScheme: 'dark' });
    report.dark = await dark.evaluate(() => document.documentElement.classList.contains('dark-mode'));
    await shoot(world, dark, 'dark');
    report.fresh = await dark.evaluate(() => document.querySelectorAll('.auth-wrapper .locked').length);
    report.again = again;
  } finally {
    await browser.close();
  }
  console.log(JSON.stringify(report));
}

main().catch((e) => { console.error(e); process.exit(1); });
