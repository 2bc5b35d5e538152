// One path through every page, as an owner: each ends with what the server has then.
export default async ({ world, browser, check, person, signIn, go, audit, stored }) => {
  const page = await person(browser);
  const button = (name, exact = true) => page.getByRole('button', { name, exact });
  const dialog = () => page.getByRole('dialog');
  const inDialog = (name) => dialog().getByRole('button', { name, exact: true });
  const get = (path) => page.evaluate(async (p) => (await fetch(p, { headers: { Accept: 'application/json' } })).json(), path);
  const plant = world.planted, groups = plant.replace(/(.{4})(?=.)/g, '$1 ');
  const inPage = async () => { const text = await page.content(); return text.includes(plant) || text.includes(groups); };

  // Browsers are led here, and a stranger sees how to sign in.
  await page.goto(`${world.vault}/`);
  await page.waitForURL('**/console/');
  await page.getByText('Sign in with a link').waitFor();
  await audit(page, 'sign-in');
  await signIn(page, 'owner');
  await page.waitForURL((u) => /^\/console\/?$/.test(u.pathname) && u.hash === '');
  check('the code of the link is in no address', !page.url().includes(world.links.owner), page.url());
  await page.getByRole('heading', { level: 1, name: 'Overview' }).waitFor();
  await page.locator('.entry').first().waitFor();
  await audit(page, 'overview');

  // Tokens: find, look, reveal with a reason, hide; create, change, delete.
  await go(page, '/tokens', 'Tokens');
  await page.getByRole('link', { name: world.token }).waitFor();
  await audit(page, 'tokens');
  check('a list holds no value', !(await inPage()));
  await page.getByRole('link', { name: world.token }).click();
  await page.getByText('Masked value').last().waitFor();
  await page.getByRole('heading', { name: 'History' }).waitFor();
  await audit(page, 'token');
  check('a masked token holds no value', !(await inPage()));
  await button('Reveal…').click();
  await page.getByLabel('Reason').fill('Dispute 1742');
  await audit(page, 'reveal asks');
  await button('Reveal for 30 s').click();
  await page.getByText('Value in clear').waitFor();
  check('a reveal shows the value', await inPage());
  await audit(page, 'token revealed');
  await page.emulateMedia({ media: 'print' });
  check('a revealed value is not printed', !(await page.locator('.value.clear').isVisible()));
  await page.emulateMedia({ media: 'screen' });
  await button('Hide now').click();
  await page.getByText('Value in clear').waitFor({ state: 'detached' });
  check('a hidden value is gone from the page', !(await inPage()));
  check('and from everything that is stored', !(await stored(page)).includes(plant), await stored(page));
  await page.getByText('Dispute 1742').waitFor();
  await button('Reveal…').click();
  await page.getByLabel('Reason').fill('Dispute 1743');
  await button('Reveal for 30 s').click();
  await page.getByText('Value in clear').waitFor();
  await page.evaluate(() => { Object.defineProperty(document, 'hidden', { get: () => true, configurable: true }); document.dispatchEvent(new Event('visibilitychange')); });
  await page.getByText('Value in clear').waitFor({ state: 'detached' });
  check('a value hides with its tab', !(await inPage()));

  await go(page, '/tokens', 'Tokens');
  await button('New token').click();
  await page.getByLabel('Number', { exact: true }).fill('4242 4242 4242 4242');
  await page.getByLabel('Expiry').fill('11/30');
  await page.getByLabel('Id', { exact: true }).fill('card-of-noah');
  await page.getByLabel('Metadata').fill('customer=Noah');
  await audit(page, 'new token');
  await inDialog('Create token').click();
  await page.getByRole('heading', { name: 'History' }).waitFor();
  check('a token was created', (await get('/tokens/card-of-noah?transform=mask')).metadata?.customer === 'Noah');
  check('what was typed is forgotten', !(await page.content()).includes('4242424242424242') && !(await page.content()).includes('4242 4242 4242'));
  await button('Change…').click();
  await page.getByLabel('Metadata').last().fill('customer=Noah\norder=7');
  await inDialog('Save').click();
  await page.getByText('order', { exact: true }).waitFor();
  check('its metadata was changed', (await get('/tokens/card-of-noah?transform=mask')).metadata?.order === '7');
  await button('Delete this token…').click();
  await page.getByLabel('Type card-of-noah to go on').fill('card-of-noah');
  await audit(page, 'delete token');
  await inDialog('Delete token').click();
  await page.waitForURL('**/console/tokens');
  check('a token was deleted', (await get('/tokens/card-of-noah')).status === 404);

  // Applications: create from a template, change rules by keyboard, see the difference, keys, delete.
  await go(page, '/applications', 'Applications');
  await page.getByRole('link', { name: 'Support desk' }).waitFor();
  await audit(page, 'applications');
  await button('New application').click();
  await page.getByLabel('Name').fill('Receipts');
  await page.getByText('Support tool').click();
  await audit(page, 'new application');
  await inDialog('Create application').click();
  await page.getByText('It is shown now, and never again').waitFor();
  const secret = await page.locator('.secret .mono').innerText();
  await inDialog('Done').click();
  await page.getByRole('heading', { level: 1, name: 'Receipts' }).waitFor();
  check('the key is gone from the page', !(await page.content()).includes(secret));
  check('and from what is stored', !(await stored(page)).includes(secret));
  await button('Delete this application…').click();
  await page.getByLabel('Type Receipts to go on').fill('Receipts');
  await inDialog('Delete application').click();
  await page.waitForURL('**/console/applications');

  await go(page, `/applications/${world.application}`, 'Support desk');
  await page.getByText('Allowed, shows the mask', { exact: true }).waitFor();
  await page.getByRole('radiogroup', { name: 'What rule 1 shows' }).getByRole('radio', { name: 'Mask' }).press('ArrowRight');
  await page.getByText('Allowed, shows the value', { exact: true }).waitFor();
  await page.getByLabel('Container of rule 2').press('Alt+ArrowUp');
  await page.waitForFunction(() => document.querySelector('[aria-label="Container of rule 1"]').value === '/general/');
  await audit(page, 'application');
  await button('Save changes…').click();
  await dialog().getByRole('cell', { name: 'read', exact: true }).first().waitFor();
  await audit(page, 'access difference');
  const before = await dialog().getByRole('row', { name: '/pci/' }).first().innerText();
  check('the difference says what changes', before.includes('Mask') && before.includes('Value'), before);
  await inDialog('Save').click();
  await page.getByText('Saved, counts from now on').waitFor();
  const rules = (await get(`/applications/${world.application}`)).rules.sort((a, b) => a.priority - b.priority).map((r) => `${r.container} ${r.transform}`);
  check('the rules are saved in their order', JSON.stringify(rules) === JSON.stringify(['/general/ reveal', '/pci/ reveal']), rules);
  await button('New key').click();
  await inDialog('Done').click();
  await button('Revoke key 1').click();
  await page.getByLabel('Type key 1 to go on').fill('key 1');
  await inDialog('Revoke key').click();
  await page.getByText('1 of 3').waitFor();
  check('keys were rotated', (await get(`/applications/${world.application}`)).keys.map((k) => k.version).join() === '2');

  await go(page, '/sessions', 'Sessions');
  await page.getByText('No live sessions').waitFor();
  await audit(page, 'sessions');

  // Members: add, change, remove.
  await go(page, '/members', 'Members');
  await page.getByRole('cell', { name: 'support@shop.example', exact: true }).first().waitFor();
  await audit(page, 'members');
  await button('New member').click();
  await page.getByLabel('Email').fill('lena@shop.example');
  await page.getByLabel('Name').fill('Lena');
  await audit(page, 'new member');
  await inDialog('Add member').click();
  await button('Change Lena').click();
  await page.getByLabel('May sign in').uncheck();
  await inDialog('Save').click();
  await page.getByText('disabled', { exact: true }).waitFor();
  await button('Remove Lena').click();
  await page.getByLabel('Type lena@shop.example to go on').fill('lena@shop.example');
  await inDialog('Remove member').click();
  await page.getByRole('cell', { name: 'lena@shop.example', exact: true }).waitFor({ state: 'detached' });
  check('a member was removed', !(await get('/members?size=100')).data.some((m) => m.email === 'lena@shop.example'));
  await page.getByRole('tab', { name: 'Roles' }).click();
  await page.getByText('Finds tokens and sees their masks.').waitFor();
  await audit(page, 'roles');

  // Reactors: change and deploy.
  await go(page, '/reactors', 'Reactors');
  await page.getByRole('link', { name: 'Last four' }).waitFor();
  await audit(page, 'reactors');
  await go(page, `/reactors/${world.reactor}`, 'Last four');
  await page.getByLabel('Code of the reactor').waitFor();
  await audit(page, 'reactor');
  await page.getByLabel('Code of the reactor').press('Control+Home');
  await page.keyboard.type('// changed here');
  await page.keyboard.press('Enter');
  await button('Deploy').click();
  await page.getByRole('status').filter({ hasText: 'Deployed' }).waitFor();
  check('the code was deployed', (await get(`/reactors/${world.reactor}`)).code.startsWith('// changed here'));

  // Proxies: create, preview, delete.
  await go(page, '/proxies', 'Proxies');
  await page.getByRole('link', { name: 'Acme Pay' }).waitFor();
  await audit(page, 'proxies');
  await button('New proxy').click();
  await page.getByLabel('Name').fill('Receipts');
  await page.getByLabel('Destination').fill('https://receipts.example/v1');
  await audit(page, 'new proxy');
  await inDialog('Create proxy').click();
  await page.getByRole('heading', { level: 1, name: 'Receipts' }).waitFor();
  await page.getByText('Values in this request').waitFor();
  await page.getByLabel('Body to send').waitFor();
  await audit(page, 'proxy');
  check('a preview holds no value', !(await inPage()));
  await button('Delete this proxy…').click();
  await page.getByLabel('Type Receipts to go on').fill('Receipts');
  await inDialog('Delete proxy').click();
  await page.waitForURL('**/console/proxies');

  // The log has what happened, with the reason.
  await go(page, `/log?entity=${world.token}`, 'Audit log');
  await page.getByText('Dispute 1742').waitFor();
  await page.getByLabel('Details of this entry').first().click();
  await audit(page, 'log');
  await go(page, '/log?outcome=denied', 'Audit log');
  await page.getByText('was refused').first().waitFor();

  for (const [to, heading] of [['/webhooks', 'Webhooks'], ['/events', 'Events'], ['/reports', 'Reports'], ['/keys', 'Keys'], ['/elements', 'Card fields']]) {
    await go(page, to, heading);
    await audit(page, heading);
  }

  // Settings: change the name of the tenant.
  await go(page, '/settings', 'Settings');
  await page.getByLabel('Name', { exact: true }).fill('Fernhill Outfitters');
  await audit(page, 'settings');
  await button('Save changes').click();
  await page.getByRole('status').filter({ hasText: 'Saved' }).waitFor();
  check('the name was changed', (await get('/tenants/self')).name === 'Fernhill Outfitters');

  // The keyboard jumps to a page.
  await page.keyboard.press('Control+k');
  await page.getByRole('combobox', { name: 'Jump to' }).fill('audit');
  await audit(page, 'jump');
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { level: 1, name: 'Audit log' }).waitFor();

  check('nothing but the theme is stored', JSON.stringify(JSON.parse(await stored(page)).slice(0, 5)) === '[[],[],"",[],[]]', await stored(page));
  await button('Use dark colours').click();
  check('the theme is stored', JSON.parse(await stored(page))[0].every(([k]) => k === 'mantine-color-scheme-value'), await stored(page));
  await button('Sign out').click();
  await page.getByText('Sign in with a link').waitFor();
  check('after signing out nobody is signed in', (await page.evaluate(async () => (await fetch('/members/self')).status)) === 401);
  check('no other origin was called', page.elsewhere.length === 0, page.elsewhere);
  check('no script failed', page.errors.length === 0, page.errors);
  check('no address had the value', !page.asked.some((a) => a.includes(plant)));
};
