// A member of each role sees the pages that the role allows, and the others say what they take.
const pages = { '/tokens': 'token:read', '/applications': 'application:read', '/sessions': 'session:read', '/members': 'member:read', '/reactors': 'reactor:read', '/proxies': 'proxy:read', '/log': 'log:read', '/reports': 'report:read', '/settings': 'tenant:read' };

export default async ({ world, browser, check, person, signIn }) => {
  for (const role of Object.keys(world.links)) {
    const page = await person(browser);
    await signIn(page, role);
    const self = await page.evaluate(async () => (await fetch('/members/self')).json());
    const may = (p) => self.role.permissions.includes(p) || self.role.rules.some((r) => r.permissions.includes(p));
    check(`${role} is who signed in`, self.role.name === role, self.role.name);
    for (const [path, permission] of Object.entries(pages)) {
      await page.goto(`${world.vault}/console${path}`);
      await page.getByRole('heading', { level: 1 }).waitFor();
      await page.waitForFunction(() => !document.querySelector('[aria-busy="true"]'));
      const closed = await page.getByText('Your role does not show this').count(), refused = await page.getByText('Your role does not allow this').count();
      check(`${role} at ${path}`, (closed > 0) !== may(permission), { closed, permission });
      check(`${role} at ${path} is refused nothing that the page asks`, refused === 0, refused);
      check(`${role} has a link to ${path} or none`, ((await page.locator(`nav a[href="/console${path}"]`).count()) > 0) === may(permission));
    }
    check(`${role}: no value was shown`, !(await page.content()).includes(world.planted));
    await page.context().close();
  }
};
