'use strict';

const assert = require('node:assert/strict');
const { randomUUID } = require('node:crypto');
const { suite, refused, collect, eventually } = require('./check');

const visa = '4242424242424242';
const echo = 'module.exports = async (req) => ({ raw: { args: req.args, configuration: req.configuration } })';

module.exports = (name, world) => {
  const { BasisTheoryClient, BasisTheory, BasisTheoryError } = require(name);
  const keys = world.keys[name];
  const as = (apiKey, more) => new BasisTheoryClient({ apiKey, environment: world.url, ...more });
  const manager = as(keys.management);
  const user = as(keys.private);
  const page = as(keys.public);
  const check = suite(name);
  const text = (more) => user.tokens.create({ type: 'token', data: 'secret value', ...more });

  check('tokens.create masks what it returns', async () => {
    const made = await user.tokens.create({
      id: `mine-${name}`, type: 'card', data: { number: visa, expiration_month: 12, expiration_year: 2030, cvc: '123' },
      metadata: { order_id: '7', camelCase: 'x' }, searchIndexes: ['{{ data.number | last4 }}'],
      fingerprintExpression: '{{ data.number }}', containers: ['/pci/high/'], expiresAt: '2999-01-01T00:00:00Z',
    });
    assert.equal(made.id, `mine-${name}`);
    assert.equal(made.tenantId, keys.tenant);
    assert.equal(made.type, 'card');
    assert.deepEqual(made.data, { number: 'XXXXXXXXXXXX4242', expiration_month: 12, expiration_year: 2030 });
    assert.deepEqual(made.metadata, { order_id: '7', camelCase: 'x' });
    assert.deepEqual(made.containers, ['/pci/high/']);
    assert.deepEqual(made.searchIndexes, ['{{ data.number | last4 }}']);
    assert.equal(made.fingerprintExpression, '{{ data.number }}');
    assert.equal(made.card.last4, '4242');
    assert.equal(made.card.bin, '42424242');
    assert.equal(made.card.brand, 'visa');
    assert.equal(made.card.expirationMonth, 12);
    assert.equal(made.createdBy, keys.privateApplication);
    assert.ok(made.createdAt instanceof Date && Math.abs(made.createdAt - Date.now()) < 600_000);
    assert.equal(made.expiresAt.toISOString(), '2999-01-01T00:00:00.000Z');
    assert.ok(made.fingerprint.length > 10);
  });

  check('tokens.get reveals to whom may see', async () => {
    const made = await user.tokens.create({ type: 'bank', data: { routing_number: '021000021', account_number: '0001234567' } });
    const got = await user.tokens.get(made.id);
    assert.deepEqual(got.data, { routing_number: '021000021', account_number: '0001234567' });
    assert.equal(got.bank.routingNumber, '021000021');
    assert.equal(got.bank.accountNumberLast4, '4567');
  });

  check('tokens.get takes an id that has to be encoded', async () => {
    const id = `with space@${name}:ü`;
    await text({ id });
    assert.equal((await user.tokens.get(id)).id, id);
    await user.tokens.delete(id);
  });

  check('tokens.update merges', async () => {
    const made = await user.tokens.create({ type: 'token', data: { a: 'aaaaaaaa', b: 'bbbbbbbb' }, metadata: { k: '1', l: '2' } });
    const changed = await user.tokens.update(made.id, { data: { b: 'cccccccc' }, metadata: { k: '3' }, containers: ['/general/low/'] });
    assert.deepEqual(changed.metadata, { k: '3', l: '2' });
    assert.deepEqual(changed.containers, ['/general/low/']);
    assert.equal(changed.modifiedBy, keys.privateApplication);
    assert.ok(changed.modifiedAt instanceof Date);
    assert.deepEqual((await user.tokens.get(made.id)).data, { a: 'aaaaaaaa', b: 'cccccccc' });
  });

  check('tokens.update removes what is null', async () => {
    const made = await text({ metadata: { k: '1', l: '2' }, expiresAt: '2999-01-01T00:00:00Z' });
    const changed = await user.tokens.update(made.id, { metadata: { k: null }, expiresAt: null });
    assert.deepEqual(changed.metadata, { l: '2' });
    assert.equal(changed.expiresAt, undefined);
    assert.equal((await user.tokens.get(made.id)).data, 'secret value');
  });

  check('tokens.create takes expressions for id and mask', async () => {
    const made = await user.tokens.create({
      type: 'card', id: '{{ data.number | alias_card: false, true }}', data: { number: visa }, mask: { number: '{{ data.number | reveal_last: 4 }}', kept: 'as is' },
    });
    assert.match(made.id, /^\d{12}4242$/);
    assert.notEqual(made.id, visa);
    assert.deepEqual(made.data, { number: 'XXXXXXXXXXXX4242', kept: 'as is' });
  });

  check('tokens.delete deletes', async () => {
    const { id } = await text();
    assert.equal(await user.tokens.delete(id), undefined);
    const e = await refused(() => user.tokens.get(id));
    assert.ok(e instanceof BasisTheory.NotFoundError);
    assert.equal(e.statusCode, 404);
  });

  check('tokens.create deduplicates', async () => {
    const data = `once ${randomUUID()}`;
    const first = await text({ data, deduplicateToken: true });
    const second = await text({ data, deduplicateToken: true });
    assert.equal(second.id, first.id);
  });

  if (user.tokens.list) { // the newer one lists from place to place alone
    check('tokens.list filters by ids and goes through pages', async () => {
      const ids = [];
      for (let i = 0; i < 3; i++) ids.push((await text({ metadata: { list: `${name}-pages` } })).id);
      const listed = await user.tokens.list({ id: ids, size: 2 });
      assert.equal(listed.data.length, 2);
      assert.deepEqual(listed.response.pagination, { totalItems: 3, pageNumber: 1, pageSize: 2, totalPages: 2 });
      assert.deepEqual((await collect(user.tokens.list({ id: ids, size: 2 }))).map((t) => t.id), ids);
      assert.equal((await user.tokens.list({ id: ids[1] })).data.length, 1);
      assert.equal((await collect(user.tokens.list({ metadata: { list: `${name}-PAGES` }, size: 1 }))).length, 3);
    });

    check('tokens.search finds and goes through pages', async () => {
      for (let i = 0; i < 3; i++) await text({ metadata: { search: `${name}-s` }, searchIndexes: ['{{ data }}'] });
      assert.equal((await collect(user.tokens.search({ query: `metadata.search:"${name}-s"`, size: 2 }))).length, 3);
    });
  }

  check('tokens.listV2 goes through pages', async () => {
    for (let i = 0; i < 3; i++) await text({ metadata: { v2: 'yes' } });
    const first = await user.tokens.listV2({ metadata: { v2: 'YES' }, size: 2 });
    assert.equal(first.data.length, 2);
    assert.ok(first.hasNextPage());
    assert.equal((await collect(user.tokens.listV2({ metadata: { v2: 'yes' }, size: 2 }))).length, 3);
  });

  check('tokens.listV2 filters by type, container and fingerprint', async () => {
    const one = await text({ data: `only ${randomUUID()}`, containers: [`/only/${name}/`], fingerprintExpression: '{{ data }}' });
    await user.tokens.create({ type: 'social_security_number', data: '123-45-6789' });
    assert.deepEqual((await collect(user.tokens.listV2({ type: 'social_security_number' }))).map((t) => t.type), ['social_security_number']);
    assert.deepEqual((await collect(user.tokens.listV2({ container: `/only/${name}/` }))).map((t) => t.id), [one.id]);
    assert.deepEqual((await collect(user.tokens.listV2({ fingerprint: one.fingerprint }))).map((t) => t.id), [one.id]);
    assert.deepEqual(await collect(user.tokens.listV2({ fingerprint: 'nobodys' })), []);
  });

  check('tokens.searchV2 finds and goes through pages', async () => {
    for (let i = 0; i < 3; i++) await text({ metadata: { search: 'v2' }, searchIndexes: ['{{ data }}'] });
    const found = await collect(user.tokens.searchV2({ query: 'metadata.search:v2 AND data:"secret value"', size: 2 }));
    assert.equal(found.length, 3);
  });

  check('tokens.searchV2 wants a query', async () => {
    await assert.rejects(user.tokens.searchV2(), (e) => e.statusCode === 400);
  });

  check('tokens.tokenize keeps the structure', async () => {
    const made = await user.tokens.tokenize({
      first_name: 'Jane Doe', card: { type: 'card', data: { number: visa, expiration_month: 1, expiration_year: 2031 }, metadata: { aB: 'c' } }, list: ['one value', { type: 'token', data: 'another value' }],
    });
    assert.equal(typeof made.first_name, 'string');
    assert.equal(made.card.type, 'card');
    assert.equal(made.card.tenant_id, keys.tenant);
    assert.equal(made.card.data.number, 'XXXXXXXXXXXX4242');
    assert.deepEqual(made.card.metadata, { aB: 'c' });
    assert.equal(typeof made.list[0], 'string');
    assert.equal(made.list[1].type, 'token');
    const single = await user.tokens.tokenize({ type: 'card', data: { number: visa } });
    assert.equal(single.mask.number, 'XXXXXXXXXXXX4242');
    assert.equal(typeof (await user.tokens.tokenize(['one value']))[0], 'string');
  });

  check('tokens.detokenize gives back', async () => {
    const made = await user.tokens.create({ type: 'card', data: { number: visa, expiration_month: 1, expiration_year: 2031 } });
    const got = await user.tokens.detokenize({
      whole: `{{ ${made.id} }}`, number: `{{ ${made.id} | json: '$.number' }}`, text: `ends in {{ ${made.id} | json: '$.number' | last4 }}`, plain: 1,
    });
    assert.deepEqual(got, { whole: { number: visa, expiration_month: 1, expiration_year: 2031 }, number: visa, text: 'ends in 4242', plain: 1 });
  });

  check('sessions are made, authorized and used', async () => {
    const session = await page.sessions.create();
    assert.match(session.sessionKey, /^key_/);
    assert.ok(session.expiresAt instanceof Date && session.expiresAt > new Date());
    const inside = as(session.sessionKey);
    assert.ok((await refused(() => inside.tokens.create({ type: 'token', data: 'x' }))) instanceof BasisTheory.ForbiddenError);
    const card = await user.tokens.create({ type: 'card', data: { number: visa } });
    assert.equal(await user.sessions.authorize({
      nonce: session.nonce, expiresAt: new Date(Date.now() + 60_000).toISOString(),
      rules: [{ description: 'one card', priority: 1, conditions: [{ attribute: 'id', operator: 'equals', value: card.id }], permissions: ['token:read'], transform: 'reveal' }],
    }), undefined);
    assert.equal((await inside.tokens.get(card.id)).data.number, visa);
    const e = await refused(() => user.sessions.authorize({ nonce: session.nonce, permissions: ['token:read'] }));
    assert.equal(e.statusCode, 409);
  });

  check('sessions are authorized with plain permissions', async () => {
    const session = await page.sessions.create();
    await user.sessions.authorize({ nonce: session.nonce, permissions: ['token:create'] });
    const made = await as(session.sessionKey).tokens.create({ type: 'token', data: 'from a page' });
    assert.equal(made.createdBy, keys.publicApplication);
  });

  check('reactors are made, read, listed, replaced, patched and deleted', async () => {
    const made = await manager.reactors.create({ name: `r ${name}`, code: echo, configuration: { camelCase: 'a', snake_case: 'b' }, application: { id: keys.privateApplication } });
    assert.equal(made.tenantId, keys.tenant);
    assert.equal(made.application.id, keys.privateApplication);
    assert.deepEqual(made.configuration, { camelCase: 'a', snake_case: 'b' });
    assert.ok(made.createdAt instanceof Date);
    assert.equal((await manager.reactors.get(made.id)).code, echo);
    assert.deepEqual((await collect(manager.reactors.list({ id: [made.id] }))).map((r) => r.id), [made.id]);
    assert.deepEqual((await collect(manager.reactors.list({ name: `r ${name}*`, size: 1 }))).map((r) => r.id), [made.id]);
    const changed = await manager.reactors.update(made.id, { name: 'changed', code: echo, configuration: {} });
    assert.equal(changed.name, 'changed');
    assert.equal(changed.application, undefined);
    assert.equal(await manager.reactors.patch(made.id, { name: 'patched', configuration: { k: 'v' } }), undefined);
    const got = await manager.reactors.get(made.id);
    assert.equal(got.name, 'patched');
    assert.deepEqual(got.configuration, { k: 'v' });
    assert.equal(await manager.reactors.delete(made.id), undefined);
    assert.ok((await refused(() => manager.reactors.get(made.id))) instanceof BasisTheory.NotFoundError);
  });

  check('reactors.create takes a reactor as it was read', async () => {
    const made = await manager.reactors.create({ name: 'again', code: echo, application: { id: keys.privateApplication } });
    const again = await manager.reactors.update(made.id, await manager.reactors.get(made.id));
    assert.equal(again.application.id, keys.privateApplication);
  });

  check('reactors.react runs code with values', async () => {
    const made = await manager.reactors.create({ name: 'run', code: echo, configuration: { Key: 'v' } });
    const { id } = await text();
    const answer = await user.reactors.react(made.id, { args: { camelCase: `{{ ${id} }}`, snake_case: { n: 1 } } });
    assert.deepEqual(answer.raw, { args: { camelCase: 'secret value', snake_case: { n: 1 } }, configuration: { Key: 'v' } });
    assert.deepEqual((await user.reactors.react(made.id, {})).raw.configuration, { Key: 'v' });
  });

  check('reactors.react takes no request at all', async () => {
    const made = await manager.reactors.create({ name: 'bare', code: 'module.exports = async () => ({ raw: 1 })' });
    assert.equal((await user.reactors.react(made.id)).raw, 1);
    assert.ok((await user.reactors.reactAsync(made.id)).asyncReactorRequestId);
  });

  check('reactors.react returns tokens and uses its client', async () => {
    const made = await manager.reactors.create({
      name: 'bt', configuration: {}, application: { id: keys.privateApplication },
      code: `module.exports = async ({ bt, args }) => {
        const token = await bt.tokens.create({ type: 'token', data: 'made inside', metadata: { from: 'code' } });
        return { raw: { id: token.id, tenantId: token.tenantId }, tokenize: { card: { type: 'card', data: { number: '${visa}' } } } };
      }`,
    });
    const { raw, tokens } = await user.reactors.react(made.id, { args: {} });
    assert.equal((await user.tokens.get(raw.id)).data, 'made inside');
    assert.equal(raw.tenantId, keys.tenant);
    assert.equal(tokens.card.type, 'card');
  });

  check('reactors.react types the errors of code', async () => {
    const define = async (code) => (await manager.reactors.create({ name: 'errors', code, configuration: {} })).id;
    const sdk = "const e = require('@basis-theory/basis-theory-reactor-formulas-sdk-js');";
    const bad = await refused(async () => user.reactors.react(await define(`${sdk} module.exports = async () => { throw new e.BadRequestError('no good') }`), { args: {} }));
    assert.ok(bad instanceof BasisTheory.BadRequestError);
    assert.deepEqual(bad.body.errors, { error: ['no good'] });
    const denied = await refused(async () => user.reactors.react(await define(`${sdk} module.exports = async () => { throw new e.AuthenticationError() }`), { args: {} }));
    assert.ok(denied instanceof BasisTheory.UnauthorizedError);
    const thrown = await refused(async () => user.reactors.react(await define('module.exports = async () => { throw new Error("boom") }'), { args: {} }));
    assert.ok(thrown instanceof BasisTheory.UnprocessableEntityError);
    assert.equal(thrown.body.status, 422);
    const newer = await refused(async () => user.reactors.react(await define('module.exports = async () => ({ body: { a: 1 }, headers: {} })'), { args: {} }));
    assert.ok(newer instanceof BasisTheory.UnprocessableEntityError);
    const missing = await refused(async () => user.reactors.react(await define(echo), { args: { a: '{{ nobody }}' } }));
    assert.ok(missing instanceof BasisTheory.BadRequestError);
    assert.equal((await refused(() => user.reactors.react(randomUUID(), { args: {} }))).statusCode, 404);
  });

  check('reactors.react gives an answer of the code as it is', async () => {
    const made = await manager.reactors.create({
      name: 'own', configuration: {},
      code: "const { CustomHttpResponseError } = require('@basis-theory/basis-theory-reactor-formulas-sdk-js'); module.exports = async ({ args }) => { throw new CustomHttpResponseError({ status: args.status, headers: { 'X-Own': 'y' }, body: { raw: { mine: true } } }) }",
    });
    assert.deepEqual((await user.reactors.react(made.id, { args: { status: 200 } })).raw, { mine: true });
    const e = await refused(() => user.reactors.react(made.id, { args: { status: 418 } }));
    assert.equal(e.statusCode, 418);
    assert.deepEqual(e.body, { raw: { mine: true } });
  });

  check('tokens.detokenize says what it could not find', async () => {
    const e = await refused(() => user.tokens.detokenize({ a: '{{ nobody }}' }));
    assert.ok(e instanceof BasisTheory.BadRequestError);
    assert.match(e.body.detail, /nobody/);
    assert.ok((await refused(() => page.tokens.detokenize({ a: `{{ mine-${name} }}` }))) instanceof BasisTheory.ForbiddenError);
  });

  check('reactors.react does not run code that failed again', async () => {
    const made = await manager.reactors.create({
      name: 'charge', configuration: {},
      code: `const http = require('http');
        module.exports = async ({ args }) => {
          await new Promise((done, failed) => http.get(args.to, (r) => { r.resume(); r.on('end', done) }).on('error', failed));
          throw new Error('the bank said no');
        }`,
    });
    const place = `/count/${randomUUID()}`;
    await refused(() => user.reactors.react(made.id, { args: { to: world.destination + place } }));
    assert.equal(await (await fetch(`${world.destination}/counted${place}`)).text(), '1');
  });

  check('reactors.react with a callback answers at once', async () => {
    const made = await manager.reactors.create({ name: 'later', code: echo, configuration: {} });
    const place = `/keep/${randomUUID()}`;
    const body = { args: { a: 1 } };
    body[name === 'node-sdk-5' ? 'callback_url' : 'callbackUrl'] = world.destination + place;
    assert.deepEqual(await user.reactors.react(made.id, body), {});
    const came = await eventually(async () => {
      const r = await fetch(`${world.destination}/kept${place}`);
      assert.equal(r.status, 200);
      return r.json();
    });
    assert.deepEqual(came.raw.args, { a: 1 });
  });

  check('reactors.reactAsync and results.get', async () => {
    const made = await manager.reactors.create({ name: 'async', code: echo, configuration: {} });
    const { asyncReactorRequestId } = await user.reactors.reactAsync(made.id, { args: { a: 'b' } });
    assert.match(asyncReactorRequestId, /^[0-9a-f-]{36}$/);
    const got = await eventually(() => user.reactors.results.get(made.id, asyncReactorRequestId));
    assert.deepEqual(got.raw.args, { a: 'b' });
  });

  const call = (key, more = {}, path = '') => fetch(`${world.url}/proxy${path}`, {
    method: 'POST', body: '{"a":1}', ...more,
    headers: { 'BT-API-KEY': keys.private, 'BT-PROXY-KEY': key, 'Content-Type': 'application/json', ...more.headers },
  });

  check('proxies are made, read, listed, replaced, patched and deleted', async () => {
    const made = await manager.proxies.create({
      name: `p ${name}`, destinationUrl: `${world.destination}/echo`, requireAuth: true, application: { id: keys.privateApplication }, configuration: { camelCase: 'a' },
      requestTransform: { code: 'module.exports = async ({ args }) => ({ body: args.body, headers: args.headers })' },
    });
    assert.match(made.key, /^key_/);
    assert.equal(made.applicationId, keys.privateApplication);
    assert.equal(made.requireAuth, true);
    assert.deepEqual(made.configuration, { camelCase: 'a' });
    const got = await manager.proxies.get(made.id);
    assert.equal(got.key, made.key);
    assert.ok(got.requestTransform.code);
    assert.deepEqual((await collect(manager.proxies.list({ id: made.id }))).map((p) => p.id), [made.id]);
    assert.deepEqual((await collect(manager.proxies.list({ name: `p ${name}`, size: 1 }))).map((p) => p.id), [made.id]);
    const changed = await manager.proxies.update(made.id, { name: 'changed', destinationUrl: `${world.destination}/echo` });
    assert.equal(changed.key, made.key);
    assert.equal(changed.requestTransform, undefined);
    assert.equal(await manager.proxies.patch(made.id, { requireAuth: false }), undefined);
    assert.equal((await manager.proxies.get(made.id)).requireAuth, false);
    assert.equal(await manager.proxies.delete(made.id), undefined);
    assert.ok((await refused(() => manager.proxies.get(made.id))) instanceof BasisTheory.NotFoundError);
  });

  if (name === 'node-sdk-5') {
    check('proxies.create refuses what would not be done', async () => {
      const destinationUrl = `${world.destination}/echo`;
      for (const [member, more] of Object.entries({
        response_transforms: { responseTransforms: [{ type: 'mask', matcher: 'regex', expression: '.*', replacement: '*' }] },
        'response_transform.type': { responseTransform: { type: 'mask', matcher: 'chase_stratus_pan', replacement: '*' } },
        disable_detokenization: { disableDetokenization: true },
      })) {
        const e = await refused(() => manager.proxies.create({ name: 'x', destinationUrl, ...more }));
        assert.ok(e instanceof BasisTheory.BadRequestError);
        assert.deepEqual(Object.keys(e.body.errors), [member]);
      }
      await manager.proxies.create({ name: 'x', destinationUrl, requestTransforms: [], disableDetokenization: false, responseTransform: { type: 'code', code: 'module.exports = async (req) => req.args' } });
    });
  }

  check('proxies run reactors as their transforms', async () => {
    const made = await manager.reactors.create({
      name: 'shape', configuration: { k: 'of the reactor' },
      code: 'module.exports = async ({ args, configuration }) => ({ raw: { body: { ...args.body, seen: configuration.k }, headers: args.headers } })',
    });
    const proxy = await manager.proxies.create({ name: 'shaped', destinationUrl: `${world.destination}/echo`, requestReactorId: made.id, responseReactorId: made.id });
    assert.deepEqual([proxy.requestReactorId, proxy.responseReactorId], [made.id, made.id]);
    const { id } = await text();
    const answer = await (await call(proxy.key, { body: JSON.stringify({ value: `{{ ${id} }}` }) }, '/x')).json();
    assert.equal(answer.seen, 'of the reactor');
    assert.equal(JSON.parse(answer.body).seen, 'of the reactor');
    assert.equal((await refused(() => manager.reactors.delete(made.id))).statusCode, 409);
    await manager.proxies.update(proxy.id, { name: 'plain', destinationUrl: `${world.destination}/echo` });
    await manager.reactors.delete(made.id);
    const unknown = await refused(() => manager.proxies.create({ name: 'x', destinationUrl: `${world.destination}/echo`, responseReactorId: made.id }));
    assert.ok(unknown instanceof BasisTheory.BadRequestError);
    assert.deepEqual(Object.keys(unknown.body.errors), ['response_reactor_id']);
  });

  check('a proxy that the client made forwards with values', async () => {
    const made = await manager.proxies.create({
      name: 'forward', destinationUrl: `${world.destination}/echo`, configuration: { k: 'v' },
      responseTransform: { code: 'module.exports = async ({ args, configuration }) => ({ body: { ...args.body, seen: configuration.k }, headers: args.headers })' },
    });
    const { id } = await text();
    const answer = await call(made.key, { body: JSON.stringify({ value: `{{ ${id} }}` }), headers: { Authorization: 'Bearer abc' } }, '/sub/path?x=1');
    assert.equal(answer.status, 200);
    assert.equal(answer.headers.get('BT-PROXY-DESTINATION-STATUS'), '200');
    const got = await answer.json();
    assert.deepEqual(JSON.parse(got.body), { value: 'secret value' });
    assert.equal(got.path, '/echo/sub/path?x=1');
    assert.equal(got.authorization, 'Bearer abc');
    assert.equal(got.seen, 'v');
    const byQuery = await fetch(`${world.url}/proxy?bt-proxy-key=${made.key}`, { headers: { 'BT-API-KEY': keys.private } });
    assert.equal((await byQuery.json()).path, '/echo');
    const denied = await call(made.key, { headers: { 'BT-API-KEY': '' } });
    assert.equal(denied.status, 401);
    assert.equal((await denied.json()).proxy_error.detail, 'The BT-API-KEY header is required');
  });

  check('a proxy without require_auth takes no key, and a session may call one', async () => {
    const open = await manager.proxies.create({ name: 'open', destinationUrl: `${world.destination}/echo`, requireAuth: false });
    assert.equal((await fetch(`${world.url}/proxy`, { headers: { 'BT-PROXY-KEY': open.key } })).status, 200);
    const shut = await manager.proxies.create({ name: 'shut', destinationUrl: `${world.destination}/echo` });
    const session = await page.sessions.create();
    await user.sessions.authorize({ nonce: session.nonce, permissions: ['token:use'] });
    const { id } = await text();
    const answer = await call(shut.key, { body: `"{{ ${id} }}"`, headers: { 'BT-API-KEY': session.sessionKey } });
    assert.equal((await answer.json()).body, '"secret value"');
  });

  check('a browser may send what the clients send', async () => {
    const preflight = await fetch(`${world.url}/tokens`, {
      method: 'OPTIONS', headers: { Origin: 'https://shop.example', 'Access-Control-Request-Method': 'POST', 'Access-Control-Request-Headers': 'bt-api-key,bt-client-user-agent,x-fern-language' },
    });
    assert.equal(preflight.headers.get('Access-Control-Allow-Origin'), '*');
    assert.match(preflight.headers.get('Access-Control-Allow-Headers'), /^\*,.* BT-API-KEY/);
    assert.equal(preflight.headers.get('Access-Control-Allow-Credentials'), null);
  });

  check('what is not there is a plain 404', async () => {
    for (const ask of [() => manager.applicationTemplates.list(), () => manager.webhooks.list(), () => manager.tenants.members.list(), () => user.tokenIntents.get('x')]) {
      const e = await refused(ask);
      assert.equal(e.statusCode, 404);
      assert.equal(e.body.title, 'Not Found');
    }
  });

  check('the ephemeral proxy takes BT-PROXY-URL', async () => {
    const answer = await fetch(`${world.url}/proxy`, { headers: { 'BT-API-KEY': keys.private, 'BT-PROXY-URL': `${world.destination}/echo/there` } });
    assert.equal((await answer.json()).path, '/echo/there');
  });

  check('logs.list filters and goes through pages', async () => {
    const start = new Date(Date.now() - 3600_000);
    const { id } = await text();
    await user.tokens.get(id);
    const list = await collect(manager.logs.list({ entityType: 'token', entityId: id, startDate: start, endDate: new Date(Date.now() + 60_000), size: 1 }));
    assert.deepEqual(list.map((l) => l.operation).sort(), ['create', 'read']);
    assert.equal(list[0].actorId, keys.privateApplication);
    assert.equal(list[0].actorType, 'application');
    assert.equal(list[0].tenantId, keys.tenant);
    assert.ok(list[0].createdAt instanceof Date);
    assert.equal((await manager.logs.list({ entityId: id, endDate: start })).data.length, 0);
  });

  check('logs.list up to now shows each entry once', async () => {
    const until = new Date();
    const all = await collect(manager.logs.list({ endDate: until, size: 50 }));
    assert.equal(new Set(all.map((l) => l.id)).size, all.length);
  });

  check('logs.getEntityTypes names them', async () => {
    const types = await manager.logs.getEntityTypes();
    for (const value of ['application', 'bank', 'card', 'proxy', 'reactor', 'token']) assert.ok(types.some((t) => t.value === value && t.displayName));
  });

  check('applications are made, read, listed, replaced and deleted', async () => {
    const made = await manager.applications.create({
      name: `a ${name}`, type: 'private', permissions: ['token:create'],
      rules: [{ description: 'd', priority: 1, container: '/pci/', transform: 'mask', permissions: ['token:read'] }],
    });
    assert.match(made.key, /^key_/);
    assert.equal(made.keys.length, 1);
    assert.equal(made.rules[0].transform, 'mask');
    const own = await as(made.key).applications.getByKey();
    assert.equal(own.id, made.id);
    assert.equal(own.key, undefined);
    assert.equal((await manager.applications.get(made.id)).name, `a ${name}`);
    assert.deepEqual((await collect(manager.applications.list({ id: [made.id], size: 1 }))).map((a) => a.id), [made.id]);
    assert.ok((await collect(manager.applications.list({ type: ['public'], size: 1 }))).every((a) => a.type === 'public'));
    const changed = await manager.applications.update(made.id, { name: 'changed', permissions: ['token:create', 'token:use'] });
    assert.equal(changed.name, 'changed');
    assert.deepEqual(changed.permissions, ['token:create', 'token:use']);
    assert.equal(await manager.applications.delete(made.id), undefined);
    assert.ok((await refused(() => as(made.key).applications.getByKey())) instanceof BasisTheory.UnauthorizedError);
  });

  check('applications.create without a key', async () => {
    const made = await manager.applications.create({ name: 'keyless', type: 'public', permissions: ['token:create'], createKey: false });
    assert.equal(made.key, undefined);
  });

  check('applicationKeys are made, listed, read and deleted', async () => {
    const { id } = await manager.applications.create({ name: 'keys', type: 'public', permissions: ['token:create'] });
    const made = await manager.applicationKeys.create(id);
    assert.match(made.key, /^key_/);
    assert.equal((await as(made.key).applications.getByKey()).id, id);
    assert.equal((await manager.applicationKeys.list(id)).length, 2);
    assert.deepEqual((await manager.applicationKeys.list(id, { id: [made.id] })).map((k) => k.id), [made.id]);
    const got = await manager.applicationKeys.get(id, made.id);
    assert.equal(got.id, made.id);
    assert.equal(got.key, undefined);
    assert.ok(got.createdAt instanceof Date);
    assert.equal(await manager.applicationKeys.delete(id, made.id), undefined);
    assert.equal((await manager.applicationKeys.list(id)).length, 1);
    assert.ok((await refused(() => as(made.key).applications.getByKey())) instanceof BasisTheory.UnauthorizedError);
  });

  check('tenants.self is read, changed and counted', async () => {
    const got = await manager.tenants.self.get();
    assert.equal(got.id, keys.tenant);
    const changed = await manager.tenants.self.update({ name: `Tenant of ${name}`, settings: { deduplicate_tokens: 'false' } });
    assert.equal(changed.name, `Tenant of ${name}`);
    assert.equal(changed.settings.deduplicate_tokens, 'false');
    await text();
    assert.ok((await manager.tenants.self.getUsageReports()).totalTokens > 0);
  });

  check('tenants.self takes its settings back as they were read', async () => {
    const got = await manager.tenants.self.get();
    const changed = await manager.tenants.self.update({ name: got.name, settings: got.settings });
    assert.deepEqual(changed.settings, got.settings);
  });

  check('tenants.self.delete ends the tenant', async () => {
    const doomed = as(keys.doomed);
    assert.equal(await doomed.tenants.self.delete(), undefined);
    assert.ok((await refused(() => doomed.tenants.self.get())) instanceof BasisTheory.UnauthorizedError);
  });

  check('permissions.list names them', async () => {
    const all = await manager.permissions.list();
    assert.ok(all.length > 20 && all.every((p) => p.type && p.description && p.applicationTypes.length > 0));
    const few = await manager.permissions.list({ applicationType: 'public' });
    assert.deepEqual(few.map((p) => p.type).sort(), ['token:create', 'token:update']);
  });

  check('errors have their types and bodies', async () => {
    const bad = await refused(() => user.tokens.create({ type: 'card', data: { number: '4242424242424241' } }));
    assert.ok(bad instanceof BasisTheory.BadRequestError && bad instanceof BasisTheoryError);
    assert.equal(bad.body.title, 'One or more validation errors occurred.');
    assert.equal(bad.body.status, 400);
    assert.ok(bad.body.errors['data.number'].length > 0);
    const unknown = await refused(() => as('key_test_pvt_nobody').tokens.get('any'));
    assert.ok(unknown instanceof BasisTheory.UnauthorizedError);
    assert.equal(unknown.body.status, 401);
    assert.ok(unknown.body.detail);
    const denied = await refused(() => page.tokens.get(`mine-${name}`));
    assert.ok(denied instanceof BasisTheory.ForbiddenError);
    assert.equal(denied.body.title, 'Forbidden');
    const taken = await refused(() => text({ id: `mine-${name}` }));
    assert.ok(taken instanceof BasisTheory.ConflictError);
    const rule = await refused(() => manager.applications.create({ name: 'x', type: 'private', permissions: ['token:fly'] }));
    assert.ok(rule instanceof BasisTheory.BadRequestError && rule.body.errors);
    const code = await refused(() => manager.reactors.create({ name: 'x', code: 'module.exports = (', configuration: {} }));
    assert.ok(code instanceof BasisTheory.BadRequestError && code.body.errors.code);
    const url = await refused(() => manager.proxies.create({ name: 'x', destinationUrl: 'ftp://example.com' }));
    assert.ok(url instanceof BasisTheory.BadRequestError && url.body.errors.destination_url);
  });

  check('an idempotency key makes one of two calls', async () => {
    for (const make of [
      (o) => user.tokens.create({ type: 'token', data: 'once' }, o),
      (o) => manager.reactors.create({ name: 'once', code: echo, configuration: {} }, o),
      (o) => manager.proxies.create({ name: 'once', destinationUrl: `${world.destination}/echo` }, o),
      (o) => manager.applications.create({ name: 'once', type: 'public', permissions: ['token:create'] }, o),
    ]) {
      const idempotencyKey = randomUUID();
      const first = await make({ idempotencyKey });
      assert.equal((await make({ idempotencyKey })).id, first.id);
      assert.notEqual((await make({ idempotencyKey: randomUUID() })).id, first.id);
    }
    const { id } = await manager.reactors.create({ name: 'changed', code: echo, configuration: {} });
    for (const change of [
      (o, i) => manager.reactors.patch(id, { name: `patched ${i}` }, o),
      (o, i) => manager.reactors.update(id, { name: `replaced ${i}`, code: echo, configuration: {} }, o),
    ]) {
      const key = randomUUID();
      await change({ idempotencyKey: key }, 1);
      await change({ idempotencyKey: key }, 2);
      assert.match((await manager.reactors.get(id)).name, /1$/);
    }
    const idempotencyKey = randomUUID();
    const once = await page.sessions.create({ idempotencyKey });
    assert.equal((await page.sessions.create({ idempotencyKey })).sessionKey, once.sessionKey);
  });

  check('a correlation id comes back', async () => {
    const traced = as(keys.private, { correlationId: `trace-${name}` });
    await traced.tokens.create({ type: 'token', data: 'traced value' });
    if (name === 'node-sdk-5') {
      const { rawResponse } = await traced.tokens.tokenize({ a: 'traced value' }).withRawResponse();
      assert.equal(rawResponse.headers.get('BT-TRACE-ID'), `trace-${name}`);
      const again = { idempotencyKey: randomUUID() };
      await user.tokens.tokenize({ a: 'once' }, again);
      assert.equal((await user.tokens.tokenize({ a: 'once' }, again).withRawResponse()).rawResponse.headers.get('BT-IDEMPOTENT-REPLAYED'), 'true');
    }
  });
};
