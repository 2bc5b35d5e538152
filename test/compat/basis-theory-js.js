'use strict';

const assert = require('node:assert/strict');
const { randomUUID } = require('node:crypto');
const { suite, refused, eventually } = require('./check');

const visa = '4242424242424242';
const echo = 'module.exports = async (req) => ({ raw: { args: req.args, configuration: req.configuration } })';

module.exports = (name, world) => {
  const { BasisTheory } = require(name);
  const { BasisTheoryApiError } = require(`${name}/common`);
  const keys = world.keys[name];
  const check = suite(name);
  // It speaks http only to a host of this name, and tells others of its errors unless asked not to.
  const apiBaseUrl = world.url.replace('127.0.0.1', 'localhost');
  const as = (key) => new BasisTheory().init(key, { apiBaseUrl, disableTelemetry: true });
  const made = {};
  const client = (kind) => (made[kind] ||= as(keys[kind]));
  const text = async (more, options) => (await client('private')).tokens.create({ type: 'token', data: 'secret value', ...more }, options);

  check('tokens.create masks what it returns', async () => {
    const bt = await client('private');
    const token = await bt.tokens.create({
      id: `mine-${name}`, type: 'card', data: { number: visa, expiration_month: 12, expiration_year: 2030, cvc: '123' },
      metadata: { order_id: '7', camelCase: 'x' }, searchIndexes: ['{{ data.number | last4 }}'],
      fingerprintExpression: '{{ data.number }}', containers: ['/pci/high/'], expiresAt: '2999-01-01T00:00:00Z',
    });
    assert.equal(token.id, `mine-${name}`);
    assert.equal(token.tenantId, keys.tenant);
    assert.deepEqual(token.data, { number: 'XXXXXXXXXXXX4242', expiration_month: 12, expiration_year: 2030 });
    assert.deepEqual(token.metadata, { order_id: '7', camelCase: 'x' });
    assert.deepEqual(token.searchIndexes, ['{{ data.number | last4 }}']);
    assert.equal(token.fingerprintExpression, '{{ data.number }}');
    assert.equal(token.createdBy, keys.privateApplication);
    assert.equal(token.card.expirationMonth, 12);
    assert.equal(new Date(token.expiresAt).getUTCFullYear(), 2999);
  });

  check('tokens.retrieve reveals to whom may see', async () => {
    const { id } = await text({ data: { camelCase: 'a', snake_case: 'b' } });
    const bt = await client('private');
    assert.deepEqual((await bt.tokens.retrieve(id)).data, { camelCase: 'a', snake_case: 'b' });
  });

  check('tokens.update merges', async () => {
    const bt = await client('private');
    const { id } = await text({ data: { a: 'aaaaaaaa', b: 'bbbbbbbb' }, metadata: { k: '1', l: '2' } });
    const changed = await bt.tokens.update(id, { data: { b: 'cccccccc' }, metadata: { k: '3' } });
    assert.deepEqual(changed.metadata, { k: '3', l: '2' });
    assert.equal(changed.modifiedBy, keys.privateApplication);
    assert.deepEqual((await bt.tokens.retrieve(id)).data, { a: 'aaaaaaaa', b: 'cccccccc' });
  });

  check('tokens.update removes what is null', async () => {
    const bt = await client('private');
    const { id } = await text({ metadata: { k: '1', l: '2' }, expiresAt: '2999-01-01T00:00:00Z' });
    const changed = await bt.tokens.update(id, { metadata: { k: null }, expiresAt: null });
    assert.deepEqual(changed.metadata, { l: '2' });
    assert.equal(changed.expiresAt, undefined);
  });

  check('tokens.delete deletes', async () => {
    const bt = await client('private');
    const { id } = await text();
    await bt.tokens.delete(id);
    const e = await refused(() => bt.tokens.retrieve(id));
    assert.ok(e instanceof BasisTheoryApiError);
    assert.equal(e.status, 404);
  });

  check('tokens.list filters by ids, types and metadata', async () => {
    const bt = await client('private');
    const ids = [];
    for (let i = 0; i < 3; i++) ids.push((await text({ metadata: { myList: 'Yes' } })).id);
    const listed = await bt.tokens.list({ id: ids, type: ['token', 'card'], page: 2, size: 2 });
    assert.deepEqual(listed.pagination, { totalItems: 3, pageNumber: 2, pageSize: 2, totalPages: 2 });
    assert.deepEqual(listed.data.map((t) => t.id), [ids[2]]);
    assert.equal((await bt.tokens.list({ metadata: { myList: 'yes' } })).data.length, 3);
    assert.equal((await bt.tokens.list({ metadata: { mylist: 'yes' } })).data.length, 0);
    assert.ok((await bt.tokens.list()).data.length > 2);
  });

  check('tokens.search finds', async () => {
    const bt = await client('private');
    await text({ metadata: { search: 'js' } });
    assert.equal((await bt.tokens.search({ query: 'metadata.search:js', page: 1, size: 10 })).pagination.totalItems, 1);
  });

  check('tokenize keeps the structure', async () => {
    const bt = await client('private');
    const got = await bt.tokenize({ firstName: 'Jane Doe', card: { type: 'card', data: { number: visa }, metadata: { aB: 'c' } }, list: ['one value'] });
    assert.equal(typeof got.firstName, 'string');
    assert.equal(got.card.data.number, 'XXXXXXXXXXXX4242');
    assert.deepEqual(got.card.metadata, { aB: 'c' });
    assert.equal(typeof got.list[0], 'string');
    assert.equal((await bt.tokenize({ type: 'card', data: { number: visa } })).mask.number, 'XXXXXXXXXXXX4242');
  });

  check('sessions are made, authorized and used', async () => {
    const page = await client('public');
    const bt = await client('private');
    const session = await page.sessions.create();
    assert.match(session.sessionKey, /^key_/);
    const { id } = await text();
    await bt.sessions.authorize({
      nonce: session.nonce, expiresAt: new Date(Date.now() + 60_000).toISOString(),
      rules: [{ description: 'one', priority: 1, conditions: [{ attribute: 'id', operator: 'equals', value: id }], permissions: ['token:read'], transform: 'reveal' }],
    });
    assert.equal((await page.tokens.retrieve(id, { apiKey: session.sessionKey })).data, 'secret value');
  });

  check('reactors are made, read, listed, replaced, patched and deleted', async () => {
    const bt = await client('management');
    const reactor = await bt.reactors.create({ name: `r ${name}`, code: echo, configuration: { camelCase: 'a', snake_case: 'b' }, application: { id: keys.privateApplication } });
    assert.equal(reactor.application.id, keys.privateApplication);
    assert.deepEqual(reactor.configuration, { camelCase: 'a', snake_case: 'b' });
    assert.equal((await bt.reactors.retrieve(reactor.id)).code, echo);
    assert.deepEqual((await bt.reactors.list({ id: [reactor.id], name: 'r ' })).data.map((r) => r.id), [reactor.id]);
    assert.equal((await bt.reactors.update(reactor.id, { name: 'changed', code: echo, configuration: {} })).name, 'changed');
    await bt.reactors.patch(reactor.id, { name: 'patched', configuration: { kK: 'v' } });
    const got = await bt.reactors.retrieve(reactor.id);
    assert.equal(got.name, 'patched');
    assert.deepEqual(got.configuration, { kK: 'v' });
    await bt.reactors.patch(reactor.id, { configuration: { kK: null } });
    assert.deepEqual((await bt.reactors.retrieve(reactor.id)).configuration, {});
    await bt.reactors.delete(reactor.id);
    assert.equal((await refused(() => bt.reactors.retrieve(reactor.id))).status, 404);
  });

  check('reactors.react runs code with values', async () => {
    const bt = await client('private');
    const reactor = await (await client('management')).reactors.create({ name: 'run', code: echo });
    const { id } = await text();
    const { raw } = await bt.reactors.react(reactor.id, { args: { camelCase: `{{ ${id} }}`, snake_case: 1 } });
    assert.deepEqual(raw.args, { camelCase: 'secret value', snake_case: 1 });
  });

  check('reactors.react with a callback answers at once', async () => {
    const bt = await client('private');
    const reactor = await (await client('management')).reactors.create({ name: 'later', code: echo, configuration: {} });
    const place = `/keep/${randomUUID()}`;
    await bt.reactors.react(reactor.id, { args: { a: 1 }, callbackUrl: world.destination + place, timeoutMs: 20000 });
    const came = await eventually(async () => {
      const r = await fetch(`${world.destination}/kept${place}`);
      assert.equal(r.status, 200);
      return r.json();
    });
    assert.deepEqual(came.raw.args, { a: 1 });
  });

  check('reactors.react tells the errors of code', async () => {
    const bt = await client('private');
    const reactor = await (await client('management')).reactors.create({
      name: 'errors', configuration: {},
      code: "const e = require('@basis-theory/basis-theory-reactor-formulas-sdk-js'); module.exports = async () => { throw new e.BadRequestError({ number: ['no good'] }) }",
    });
    const e = await refused(() => bt.reactors.react(reactor.id, { args: {} }));
    assert.equal(e.status, 400);
    assert.deepEqual(e.data.errors, { number: ['no good'] });
  });

  check('proxies are made, read, listed, replaced, patched and deleted', async () => {
    const bt = await client('management');
    const proxy = await bt.proxies.create({
      name: `p ${name}`, destinationUrl: `${world.destination}/echo`, requireAuth: true, application: { id: keys.privateApplication }, configuration: { camelCase: 'a' },
      requestTransform: { code: 'module.exports = async ({ args }) => ({ body: args.body, headers: args.headers })' },
    });
    assert.match(proxy.key, /^key_/);
    assert.equal(proxy.applicationId, keys.privateApplication);
    assert.deepEqual(proxy.configuration, { camelCase: 'a' });
    assert.equal((await bt.proxies.retrieve(proxy.id)).key, proxy.key);
    assert.deepEqual((await bt.proxies.list({ id: proxy.id, name: 'p*' })).data.map((p) => p.id), [proxy.id]);
    assert.equal((await bt.proxies.update(proxy.id, { name: 'changed', destinationUrl: `${world.destination}/echo` })).requestTransform, undefined);
    await bt.proxies.patch(proxy.id, { requireAuth: false });
    assert.equal((await bt.proxies.retrieve(proxy.id)).requireAuth, false);
    await bt.proxies.delete(proxy.id);
    assert.equal((await refused(() => bt.proxies.retrieve(proxy.id))).status, 404);
  });

  check('proxy forwards by every method', async () => {
    const bt = await client('private');
    const { key } = await (await client('management')).proxies.create({ name: 'forward', destinationUrl: `${world.destination}/echo` });
    const { id } = await text();
    for (const method of ['get', 'post', 'put', 'patch', 'delete']) {
      const body = ['post', 'put', 'patch'].includes(method) ? { camelCase: `{{ ${id} }}` } : undefined;
      const got = await bt.proxy[method]({ path: '/sub', query: { x: 1 }, headers: { 'BT-PROXY-KEY': key, 'X-Mine': 'y' }, body });
      assert.equal(got.method, method.toUpperCase());
      assert.equal(got.path, '/echo/sub?x=1');
      assert.equal(got.mine, 'y');
      if (body) assert.deepEqual(JSON.parse(got.body), { camelCase: 'secret value' });
    }
  });

  check('proxy without a path, with the key in the query, with headers', async () => {
    const bt = await client('private');
    const { key } = await (await client('management')).proxies.create({ name: 'forward', destinationUrl: `${world.destination}/echo` });
    assert.equal((await bt.proxy.get({ query: { 'bt-proxy-key': key } })).method, 'GET');
    const { data, headers } = await bt.proxy.post({ headers: { 'BT-PROXY-KEY': key }, body: { a: 1 }, includeResponseHeaders: true });
    assert.equal(data.path, '/echo');
    assert.equal(headers['bt-proxy-destination-status'], '200');
    assert.equal((await bt.proxy.get({ path: '/x', headers: { 'BT-PROXY-URL': `${world.destination}/echo` } })).path, '/echo/x');
    const e = await refused(() => bt.proxy.post({ headers: { 'BT-PROXY-KEY': key }, body: { a: '{{ nobody }}' } }));
    assert.equal(e.status, 400);
    assert.equal(e.data.proxy_error.status, 400);
  });

  check('proxy takes the key of a session', async () => {
    const page = await client('public');
    const { key } = await (await client('management')).proxies.create({ name: 'session', destinationUrl: `${world.destination}/echo` });
    const session = await page.sessions.create();
    await (await client('private')).sessions.authorize({ nonce: session.nonce, permissions: ['token:use'] });
    const { id } = await text();
    const got = await page.proxy.post({ apiKey: session.sessionKey, headers: { 'BT-PROXY-KEY': key }, body: { a: `{{ ${id} }}` } });
    assert.deepEqual(JSON.parse(got.body), { a: 'secret value' });
  });

  check('logs.list filters', async () => {
    const bt = await client('management');
    const { id } = await text();
    const list = await bt.logs.list({ entityType: 'token', entityId: id, startDate: new Date(Date.now() - 60_000).toISOString(), size: 10 });
    assert.equal(list.data[0].operation, 'create');
    assert.equal(list.data[0].actorId, keys.privateApplication);
    assert.equal(list.pagination.totalItems, 1);
  });

  check('logs.list takes days and times without an offset', async () => {
    const bt = await client('management');
    const { id } = await text();
    for (const [startDate, n] of Object.entries({ '2024-01-01': 1, '2024-01-01T00:00:00': 1, '2024-01-01T00:00:00+02:00': 1, '2999-01-01': 0 })) {
      assert.equal((await bt.logs.list({ entityId: id, startDate })).data.length, n, startDate);
    }
  });

  check('tokens.create takes the dates of the contract', async () => {
    const made = await text({ expiresAt: '8/26/2099 7:23:57 PM -07:00' });
    assert.equal(new Date(made.expiresAt).toISOString(), '2099-08-27T02:23:57.000Z');
    assert.equal(new Date((await text({ expiresAt: '8/26/2099' })).expiresAt).toISOString(), '2099-08-26T00:00:00.000Z');
  });

  check('applications are made, read, listed, replaced and deleted', async () => {
    const bt = await client('management');
    const application = await bt.applications.create({ name: 'a', type: 'private', rules: [{ description: 'd', priority: 1, container: '/pci/', transform: 'mask', permissions: ['token:read'] }], expiresAt: '2999-01-01T00:00:00Z' });
    assert.match(application.key, /^key_/);
    assert.equal(new Date(application.expiresAt).getUTCFullYear(), 2999);
    assert.equal((await (await as(application.key)).applications.retrieveByKey()).id, application.id);
    assert.equal((await bt.applications.getApplicationByKey()).type, 'management');
    assert.deepEqual((await bt.applications.retrieve(application.id)).rules[0].permissions, ['token:read']);
    assert.equal((await bt.applications.list({ id: [application.id] })).data.length, 1);
    assert.deepEqual((await bt.applications.update(application.id, { name: 'b', permissions: ['token:use'] })).permissions, ['token:use']);
    const fresh = await bt.applications.regenerateKey(application.id);
    assert.notEqual(fresh.key, application.key);
    assert.equal((await (await as(fresh.key)).applications.retrieveByKey()).name, 'b');
    await bt.applications.delete(application.id);
    assert.equal((await refused(() => bt.applications.retrieve(application.id))).status, 404);
  });

  check('applicationKeys are made, listed, read and deleted', async () => {
    const bt = await client('management');
    const { id } = await bt.applications.create({ name: 'keys', type: 'public', permissions: ['token:create'] });
    const key = await bt.applicationKeys.create(id);
    assert.match(key.key, /^key_/);
    assert.equal((await bt.applicationKeys.get(id)).length, 2);
    assert.equal((await bt.applicationKeys.getById(id, key.id)).id, key.id);
    await bt.applicationKeys.delete(id, key.id);
    assert.equal((await bt.applicationKeys.get(id)).length, 1);
  });

  check('tenants is read, changed and counted', async () => {
    const bt = await client('management');
    assert.equal((await bt.tenants.retrieve()).id, keys.tenant);
    assert.equal((await bt.tenants.update({ name: 'New name', settings: { deduplicate_tokens: 'false' } })).name, 'New name');
    const report = await bt.tenants.retrieveUsageReport();
    assert.ok(report.totalTokens > 0 && report.tokenReport.totalTokens === report.totalTokens);
  });

  check('tenants.delete ends the tenant', async () => {
    const doomed = await as(keys.doomed);
    await doomed.tenants.delete();
    assert.equal((await refused(() => doomed.tenants.retrieve())).status, 401);
  });

  check('permissions.list names them', async () => {
    const bt = await client('management');
    assert.ok((await bt.permissions.list()).every((p) => p.type && p.applicationTypes.length > 0));
    assert.equal((await bt.permissions.list({ applicationType: 'public' })).length, 2);
  });

  check('errors have status and data', async () => {
    const bt = await client('private');
    const bad = await refused(() => bt.tokens.create({ type: 'card', data: { number: '4242424242424241' } }));
    assert.ok(bad instanceof BasisTheoryApiError);
    assert.equal(bad.status, 400);
    assert.equal(bad.data.title, 'One or more validation errors occurred.');
    assert.ok(Object.keys(bad.data.errors).length > 0);
    assert.equal((await refused(async () => (await as('key_test_pvt_nobody')).tokens.retrieve('any'))).status, 401);
    assert.equal((await refused(async () => (await client('public')).tokens.retrieve(`mine-${name}`))).status, 403);
    assert.equal((await refused(() => text({ id: `mine-${name}` }))).status, 409);
  });

  check('an idempotency key makes one of two calls', async () => {
    const idempotencyKey = randomUUID();
    const { id } = await text({}, { idempotencyKey });
    assert.equal((await text({}, { idempotencyKey })).id, id);
    assert.notEqual((await text({}, { idempotencyKey: randomUUID() })).id, id);
  });

  check('a correlation id comes back, and debugging shows it', async () => {
    const bt = await new BasisTheory().init(keys.private, { apiBaseUrl, disableTelemetry: true, debug: true });
    const token = await bt.tokens.create({ type: 'token', data: 'traced value' }, { correlationId: 'trace-js' });
    assert.equal(token._debug.btTraceId, 'trace-js');
  });
};
