// Every page on a phone and on a desk, in both colour schemes, and a value that hides by itself.
export default async ({ world, browser, check, person, signIn, go, audit }) => {
  const pages = [['/', 'Overview'], ['/tokens', 'Tokens'], ['/applications', 'Applications'], [`/applications/${world.application}`, 'Support desk'], ['/sessions', 'Sessions'], ['/members', 'Members'], ['/reactors', 'Reactors'],
    [`/reactors/${world.reactor}`, 'Last four'], ['/proxies', 'Proxies'], [`/proxies/${world.proxy}`, 'Acme Pay'], ['/webhooks', 'Webhooks'], ['/log', 'Audit log'], ['/events', 'Events'], ['/reports', 'Reports'], ['/keys', 'Keys'], ['/settings', 'Settings'], ['/elements', 'Card fields']];
  const first = await person(browser);
  await first.clock.install();
  await signIn(first, 'owner');
  await go(first, `/tokens/${world.token}`, 'Tokens');
  await first.getByRole('button', { name: 'Reveal…' }).click();
  await first.getByLabel('Reason').fill('Dispute 1742');
  await first.getByRole('button', { name: 'Reveal for 30 s' }).click();
  await first.getByText('Value in clear').waitFor();
  await first.clock.fastForward(31_000);
  await first.getByText('Value in clear').waitFor({ state: 'detached' });
  check('a value hides by itself', !(await first.content()).includes(world.planted));
  const state = await first.context().storageState();
  for (const colorScheme of ['light', 'dark']) for (const [size, options] of Object.entries({ desk: {}, phone: { viewport: { width: 390, height: 844 }, isMobile: true, hasTouch: true } })) {
    const page = await person(browser, { ...options, colorScheme, storageState: state });
    for (const [to, heading] of pages) {
      await go(page, to, heading);
      await audit(page, `${heading} ${size} ${colorScheme}`);
    }
    if (size === 'phone') {
      await page.getByRole('button', { name: 'Menu' }).click();
      await page.getByRole('navigation', { name: 'Main' }).waitFor();
      await audit(page, `menu ${colorScheme}`);
    }
    check(`${size} ${colorScheme}: no other origin`, page.elsewhere.length === 0, page.elsewhere);
    check(`${size} ${colorScheme}: no script failed`, page.errors.length === 0, page.errors);
    await page.context().close();
  }
};
