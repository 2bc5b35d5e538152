// Every operation, against a live server.
import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import { once } from 'node:events';
import { after, test } from 'node:test';
import { ApiError, verifyCallback } from 'tokenkeep';
import { rows } from './node_modules/tokenkeep/dist/operations.js';
import { called, client, collect, refused, world } from './world.mjs';

const management = client(world.management);
const vault = client(world.private);
const page = client(world.public);
const number = '4242424242424242';

after(() => {
  const missing = world.operations.map((o) => o.id).filter((id) => !called.has(id));
  assert.deepEqual(missing, [], 'operations that no test has called');
  assert.equal(called.size, world.operations.length);
});

test('the table is that of the document', () => {
  assert.deepEqual(Object.keys(rows).sort(), world.operations.map((o) => o.id).sort());
  for (const { id, method, path, keyed, media } of world.operations) {
    const row = rows[id];
    assert.deepEqual([id, row.method, row.path, row.keyed ?? false], [id, method, path, keyed]);
    if (media !== '' && media !== '*/*') assert.equal(row.media ?? 'application/json', media, id);
  }
});

test('the server', async () => {
  await client().health();
  await client().ready();
  assert.match(await client().metrics(), /tokenkeep_build_info/);
});

test('the tenant', async () => {
  assert.equal((await management.tenant.get()).id, world.tenant);
  const changed = await management.tenant.replace({ name: 'Shop', settings: { cvc_retention: '30m' } });
  assert.deepEqual([changed.name, changed.settings.cvc_retention], ['Shop', '30m']);
  const { secret } = await management.tenant.callbackSecret();
  const rotated = await management.tenant.rotateCallbackSecret();
  assert.match(rotated.secret, /^whsec_/);
  assert.equal(rotated.previous_secret, secret);
  assert.equal(typeof (await management.tenant.usage()).total_tokens, 'number');
  await client(world.doomed).tenant.delete();
  assert.equal((await refused(client(world.doomed).tenant.get())).kind, 'unauthenticated');
});

test('applications and their keys', async () => {
  const made = await management.applications.create({ name: 'Clerk', type: 'private', permissions: ['token:create'] });
  assert.equal((await client(made.key).applications.own()).id, made.id);
  assert.equal((await management.applications.get(made.id)).key, undefined);
  const all = await collect(management.applications.list({ type: ['private', 'public'] }));
  assert.ok(all.some((a) => a.id === made.id) && all.every((a) => a.type !== 'management'));
  assert.equal((await management.applications.page({ id: [made.id], size: 1 })).pagination.total_items, 1);
  assert.equal((await management.applications.replace(made.id, { name: 'Teller', permissions: ['token:create'] })).name, 'Teller');
  const key = await management.keys.create(made.id);
  assert.deepEqual((await management.keys.list(made.id)).length, 2);
  assert.equal((await management.keys.list(made.id, { id: [key.id] })).length, 1);
  assert.equal((await management.keys.get(made.id, key.id)).version, '2');
  await management.keys.delete(made.id, key.id);
  assert.equal((await refused(client(key.key).applications.own())).kind, 'unauthenticated');
  assert.notEqual((await management.applications.regenerate(made.id)).key, made.key);
  await management.applications.delete(made.id);
  assert.equal((await refused(management.applications.get(made.id))).kind, 'not_found');
  const permissions = await management.permissions.list({ application_type: 'public' });
  assert.ok(permissions.some((p) => p.type === 'token:create'));
});

test('tokens', async () => {
  const id = 'ümlaut card of jane';
  const made = await vault.tokens.create({ id, type: 'card', data: { number, cvc: '123' }, metadata: { order: '1001', who: 'Jané +&' } });
  assert.deepEqual([made.id, made.data.number, made.card.last4], [id, 'XXXXXXXXXXXX4242', '4242']);
  assert.equal((await vault.tokens.get(id)).data.number, number);
  const changed = await vault.tokens.update(id, { data: { expiration_year: 2034 }, metadata: { order: null } });
  assert.deepEqual([changed.data.expiration_year, changed.metadata], [2034, { who: 'Jané +&' }]);
  assert.deepEqual((await collect(vault.tokens.list({ metadata: { who: 'jané +&' }, type: ['card'] }))).map((t) => t.id), [id]);
  assert.deepEqual((await vault.tokens.searchPage('metadata.who:"Jané +&"', { size: 1 })).data.map((t) => t.id), [id]);
  await vault.tokens.delete(id);
  assert.equal((await refused(vault.tokens.get(id))).kind, 'not_found');
  const lines = [{ id: 'imported-1', type: 'card', data: { number } }, { type: 'card', data: { number: '4242424242424241' } }];
  const dry = await vault.tokens.import(lines, { dryRun: true });
  assert.deepEqual(dry.map((r) => [r.line, r.status]), [[1, 'valid'], [2, 'rejected'], [3, 'end']]);
  const imported = await vault.tokens.import(lines, { id: 'import-1', firstLine: 11 });
  assert.deepEqual(imported.map((r) => [r.line, r.status]), [[11, 'created'], [12, 'rejected'], [13, 'end']]);
  assert.deepEqual(await vault.tokens.import(lines, { id: 'import-1', firstLine: 11 }), imported);
  assert.ok(imported[1].errors['data.number'].length > 0);
  const request = { recipient: 'age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p', filter: { types: ['card'] } };
  const exported = await vault.exports.create(request);
  assert.equal((await vault.exports.get(exported.id)).status, 'ready');
  assert.equal((await management.exports.approve(exported.id, request)).id, exported.id);
  const file = Buffer.from(await new Response(await vault.exports.content(exported.id)).arrayBuffer());
  assert.ok(file.toString('latin1').startsWith('age-encryption.org/v1') && !file.includes(number));
  assert.equal((await refused(vault.exports.content('none'))).kind, 'not_found');
});

test('iterators go through all pages', async () => {
  const ids = Array.from({ length: 205 }, (_, i) => `item-${String(i).padStart(3, '0')}`);
  await vault.tokenize(ids.map((id) => ({ id, type: 'token', data: 'x', metadata: { batch: 'pages' } })));
  const filter = { metadata: { batch: 'pages' } };
  for (const items of [
    vault.tokens.list(filter),
    vault.tokens.listFrom(filter),
    vault.tokens.search('metadata.batch:pages'),
    vault.tokens.searchFrom('metadata.batch:pages'),
  ]) {
    assert.deepEqual((await collect(items)).map((t) => t.id).sort(), ids);
  }
  assert.deepEqual((await collect(vault.tokens.list({ id: ['item-007', 'item-003'] }))).map((t) => t.id), ['item-007', 'item-003']);
  let read = 0;
  for await (const token of vault.tokens.listFrom(filter)) {
    assert.ok(token.id);
    if (++read === 3) break;
  }
  assert.equal(read, 3);
  const part = await vault.tokens.pageFrom({ ...filter, size: 2 });
  const next = await vault.tokens.pageFrom({ ...filter, start: part.pagination.next, size: 2 });
  assert.equal(new Set([...part.data, ...next.data].map((t) => t.id)).size, 4);
});

test('tokenize and detokenize', async () => {
  const tokens = await vault.tokenize({ name: 'Jane Doe', card: { type: 'card', data: { number } }, none: null });
  assert.equal(tokens.none, null);
  assert.deepEqual(await vault.detokenize({ who: `{{ ${tokens.name} }}`, pan: `{{ ${tokens.card.id} | json: '$.number' }}` }), {
    who: 'Jane Doe',
    pan: number,
  });
  assert.equal(await vault.detokenize('plain'), 'plain');
});

test('an idempotency key of one’s own is honoured', async () => {
  const once = await vault.tokens.create({ type: 'token', data: 'a' }, { idempotencyKey: 'order-1001' });
  const again = await vault.tokens.create({ type: 'token', data: 'b' }, { idempotencyKey: 'order-1001' });
  const other = await vault.tokens.create({ type: 'token', data: 'a' });
  assert.equal(again.id, once.id);
  assert.notEqual(other.id, once.id);
});

test('errors say what the server said', async () => {
  const invalid = await refused(vault.tokens.create({ type: 'card', data: { number: '4242424242424241' } }, { traceId: 'my-trace.1' }));
  assert.ok(invalid instanceof ApiError);
  assert.deepEqual(
    [invalid.kind, invalid.status, invalid.title, invalid.operation, invalid.traceId],
    ['invalid', 400, 'One or more validation errors occurred.', 'POST /tokens', 'my-trace.1'],
  );
  assert.ok(Array.isArray(invalid.errors['data.number']));
  assert.ok(!JSON.stringify([invalid, invalid.message, invalid.stack]).includes('4242424242424241'));
  for (const [kind, status, call] of [
    ['unauthenticated', 401, () => client('key_test_pvt_unknown').tokens.get('a-token')],
    ['unauthenticated', 401, () => client().tokens.get('a-token')],
    ['forbidden', 403, () => page.tokens.get('a-token')],
    ['not_found', 404, () => vault.tokens.get('no-such-token')],
    ['conflict', 409, () => vault.tokens.create({ id: 'taken', type: 'token', data: 1 }).then(() => vault.tokens.create({ id: 'taken', type: 'token', data: 2 }))],
  ]) {
    const e = await refused(call());
    assert.deepEqual([e.kind, e.status], [kind, status]);
    assert.ok(e.detail && e.traceId, 'words and a trace id');
  }
});

test('sessions, as a browser uses them', async () => {
  const { session_key: key, nonce } = await page.sessions.create();
  const browser = page.withKey(key);
  assert.equal((await refused(browser.tokens.create({ type: 'card', data: { number } }))).kind, 'forbidden');
  await vault.sessions.authorize({ nonce, permissions: ['token:create'] });
  const token = await browser.tokens.create({ type: 'card', data: { number } });
  assert.equal(token.data.number, 'XXXXXXXXXXXX4242');
  assert.equal((await refused(browser.tokens.get(token.id))).kind, 'forbidden');
  assert.equal((await refused(vault.sessions.authorize({ nonce, permissions: ['token:create'] }))).kind, 'conflict');
  const [session] = await collect(management.sessions.list());
  assert.deepEqual(session.permissions, ['token:create']);
  await management.sessions.delete(session.id);
  assert.equal((await refused(browser.tokens.create({ type: 'token', data: 1 }))).kind, 'unauthenticated');
});

test('access', async () => {
  const why = await management.access.explain({ application_id: world.privateApplication, permission: 'token:read', container: '/pci/high/' });
  assert.deepEqual([why.allowed, why.transform], [true, 'reveal']);
  const who = await collect(management.access.who({ permission: 'token:read', container: '/pci/' }));
  assert.deepEqual(who.map((h) => h.id), [world.privateApplication]);
});

test('reactors', async () => {
  const code = 'module.exports = async (req) => { console.log("ran"); return { raw: req.args, tokenize: req.args.secret }; };';
  const made = await management.reactors.create({ name: 'Echo', code, configuration: { a: 'b' } });
  assert.equal((await management.reactors.get(made.id)).code, code);
  await management.reactors.patch(made.id, { name: 'Echo, echo', configuration: { a: null, c: 'd' } });
  assert.deepEqual((await management.reactors.get(made.id)).configuration, { c: 'd' });
  assert.deepEqual((await collect(management.reactors.list({ name: '*echo' }))).map((r) => r.id), [made.id]);
  const { raw, tokens } = await vault.reactors.react(made.id, { args: { n: 1, secret: 'Jane' } });
  assert.deepEqual(raw, { n: 1, secret: 'Jane' });
  assert.equal((await vault.tokens.get(tokens)).data, 'Jane');
  const { asyncReactorRequestId } = await vault.reactors.reactAsync(made.id, { args: { n: 2 } });
  let result;
  while (result === undefined) {
    result = await vault.reactors.result(made.id, asyncReactorRequestId).catch((e) => {
      if (e.kind !== 'not_found') throw e;
      return new Promise((done) => setTimeout(done, 25));
    });
  }
  assert.deepEqual(result.raw, { n: 2 });
  assert.equal((await management.reactors.runs(made.id)).data[0].console[0].text, 'ran');
  await management.reactors.replace(made.id, { name: 'Fails', configuration: {}, code: 'module.exports = async () => { throw new Error("no") }' });
  const failed = await refused(vault.reactors.react(made.id));
  assert.deepEqual([failed.status, failed.operation], [422, 'POST /reactors/{id}/react']);
  await management.reactors.delete(made.id);
});

test('a callback is genuine or it is not', async () => {
  const receiver = createServer().listen(0, '127.0.0.1');
  await once(receiver, 'listening');
  try {
    const made = await management.reactors.create({ name: 'Later', configuration: {}, code: 'module.exports = async (req) => ({ raw: req.args })' });
    const came = once(receiver, 'request');
    const url = `http://127.0.0.1:${receiver.address().port}/`;
    assert.deepEqual(await vault.reactors.react(made.id, { args: { text: 'ümläut ☂' }, callback_url: url }), {});
    const [request, response] = await came;
    const parts = [];
    for await (const part of request) parts.push(part);
    response.end();
    const body = Buffer.concat(parts);
    const { secret } = await management.tenant.callbackSecret();
    assert.deepEqual(await verifyCallback(body, request.headers, secret), { raw: { text: 'ümläut ☂' } });
    assert.deepEqual(await verifyCallback(body.toString(), new Headers(request.headers), secret), { raw: { text: 'ümläut ☂' } });
    const late = { ...request.headers, 'webhook-timestamp': String(Number(request.headers['webhook-timestamp']) - 301) };
    const unsigned = { ...request.headers, 'webhook-signature': 'v1,AAAA' };
    for (const forged of [
      () => verifyCallback(body + ' ', request.headers, secret),
      () => verifyCallback(body, late, secret),
      () => verifyCallback(body, unsigned, secret),
      () => verifyCallback(body, {}, secret),
      () => verifyCallback(body, request.headers, 'whsec_' + btoa('another secret')),
    ]) {
      assert.equal((await refused(forged())).kind, 'unauthenticated');
    }
  } finally {
    receiver.closeAllConnections();
    receiver.close();
  }
});

test('proxies', async () => {
  await vault.tokens.create({ id: 'card-of-proxies', type: 'card', data: { number } });
  const made = await management.proxies.create({ name: 'PSP', destination_url: `${world.destination}/v1`, configuration: { a: 'b', c: 'd' } });
  const pan = "{{ card-of-proxies | json: '$.number' }}";
  const preview = await management.proxies.preview(made.id, { application_id: world.privateApplication, path: '/charges', body: { pan } });
  assert.equal(preview.body, '{"pan":"[card]"}');
  assert.deepEqual([preview.allowed, preview.tokens[0].allowed, preview.tokens[0].transform, preview.tokens[0].shown], [true, true, 'reveal', 'placeholder']);
  const answer = await vault.proxies.call({ proxyKey: made.key, path: '/charges?dry=1', json: { pan }, headers: { Authorization: 'Bearer theirs' } });
  assert.deepEqual(await answer.json(), { method: 'POST', path: '/v1/charges?dry=1', authorization: 'Bearer theirs', key: '', body: `{"pan":"${number}"}` });
  assert.equal(answer.headers.get('SVC-PROXY-DESTINATION-STATUS'), '200');
  const get = await vault.proxies.call({ destination: `${world.destination}/direct` });
  assert.deepEqual([get.status, (await get.json()).path], [200, '/direct']);
  const theirs = await vault.proxies.call({ proxyKey: made.key, path: '/status/503' });
  assert.equal(theirs.status, 503, 'the status of the destination is no error of ours');
  const text = await vault.proxies.call({ proxyKey: made.key, method: 'patch', headers: { 'Content-Type': 'text/plain' }, body: new Blob([`pan ${pan}`]).stream() });
  const { method, body } = await text.json();
  assert.deepEqual([method, body], ['PATCH', `pan ${number}`]);

  const missing = await refused(vault.proxies.call({ proxyKey: made.key, json: { pan: '{{ no-such-token }}' } }));
  assert.ok(missing instanceof ApiError);
  assert.deepEqual([missing.status, missing.kind, missing.title], [400, 'invalid', 'Invalid proxy request']);
  assert.equal((await refused(client().proxies.call({ proxyKey: made.key }))).status, 401);

  await management.proxies.patch(made.id, { require_auth: false, configuration: { a: null } });
  assert.deepEqual((await management.proxies.get(made.id)).configuration, { c: 'd' });
  assert.equal((await client().proxies.call({ proxyKey: made.key })).status, 200);
  await management.proxies.patch(made.id, { require_auth: null, configuration: null });
  assert.equal((await management.proxies.get(made.id)).require_auth, true);
  const { key } = await management.proxies.rotateKey(made.id);
  assert.equal((await refused(vault.proxies.call({ proxyKey: made.key }))).kind, 'not_found');
  assert.equal((await management.proxies.replace(made.id, { name: 'Other', destination_url: world.destination })).key, key);
  assert.deepEqual((await collect(management.proxies.list({ id: [made.id] }))).map((p) => p.name), ['Other']);

  const open = await management.proxies.replace(made.id, { name: 'Other', destination_url: world.destination, require_auth: false, application_id: world.privateApplication });
  const back = await management.proxies.replace(made.id, await management.proxies.get(made.id));
  assert.deepEqual([back.application_id, back.require_auth, back.key], [world.privateApplication, false, open.key]);
  const { application_id: _, ...without } = open;
  assert.equal((await refused(management.proxies.replace(made.id, without))).code, 'application_required');
  assert.equal((await refused(management.proxies.patch(made.id, { application_id: null }))).code, 'application_required');
  assert.equal((await refused(management.proxies.replace(made.id, { ...open, application: null }))).code, 'application_mismatch');
  assert.equal((await management.proxies.replace(made.id, { ...without, application: null })).application_id, undefined);
  await management.proxies.delete(made.id);
});

test('logs', async () => {
  await vault.tokens.create({ id: 'logged', type: 'token', data: 1 });
  const [entry] = await collect(management.logs.list({ entity_id: 'logged' }));
  assert.deepEqual([entry.entity_type, entry.operation, entry.outcome], ['token', 'create', 'allowed']);
  assert.ok((await management.logs.entityTypes()).some((t) => t.value === 'token'));
  const [byCursor] = await collect(management.logs.listFrom({ entity_id: 'logged' }));
  assert.deepEqual(byCursor, entry);
  assert.deepEqual(await management.logs.names(['logged', 'unknown']), [{ id: 'logged', kind: 'token' }]);
  const all = await collect(management.logs.list(), 10000);
  assert.equal(new Set(all.map((e) => e.id)).size, all.length);
  assert.ok(all.length > 200, 'several pages');
});

test('members and roles', async () => {
  const roles = await management.roles.list();
  assert.ok(roles.some((r) => r.name === 'owner'));
  const own = await management.roles.create({ name: 'reader', permissions: ['log:read'] });
  assert.equal(own.name, 'reader');
  assert.deepEqual((await management.roles.replace('reader', { permissions: ['log:read', 'report:read'] })).permissions, ['log:read', 'report:read']);
  const made = await management.members.create({ email: 'jane@shop.example', name: 'Jane', role: 'reader' });
  assert.equal((await management.members.get(made.id)).role, 'reader');
  assert.equal((await management.members.update(made.id, { role: 'auditor' })).role, 'auditor');
  assert.ok((await collect(management.members.list())).some((m) => m.id === made.id));
  assert.deepEqual(await management.members.sessions(made.id), []);
  assert.equal((await refused(management.members.endSession('00000000-0000-4000-8000-000000000000'))).status, 404);
  await management.members.delete(made.id);
  assert.equal((await refused(management.members.get(made.id))).status, 404);
  await management.roles.delete('reader');
});

test('reports', async () => {
  assert.ok((await management.reports.activity({ bucket: 'day' })) !== undefined);
  assert.ok((await collect(management.reports.keys())).length > 0);
  assert.ok(Array.isArray(await collect(management.reports.access())));
  assert.ok(Array.isArray(await management.reports.attention()));
});

test('a reveal with a reason', async () => {
  await vault.tokens.create({ id: 'revealed', type: 'card', data: { number } });
  assert.equal((await vault.tokens.reveal('revealed', 'Dispute 17')).data.number, number);
  const missing = await refused(vault.tokens.reveal('revealed', ' '));
  assert.equal(missing.status, 400);
  const [entry] = await collect(management.logs.list({ entity_id: 'revealed', transform: 'reveal' }));
  assert.deepEqual([entry.reason, entry.transform], ['Dispute 17', 'reveal']);
});

test('versions of code', async () => {
  const trial = await management.reactors.try({ code: 'module.exports = async (req) => ({ raw: req.args.a })', args: { a: 3 } });
  assert.equal(trial.raw, 3);
  const reactor = await management.reactors.create({ name: 'versions', code: 'module.exports = async () => ({ raw: 1 })', configuration: {} });
  await management.reactors.patch(reactor.id, { code: 'module.exports = async () => ({ raw: 2 })' });
  const versions = await management.reactors.versions(reactor.id);
  assert.equal(versions.length, 2);
  assert.equal((await management.reactors.restore(reactor.id, versions[1].number)).code, 'module.exports = async () => ({ raw: 1 })');
  await management.reactors.delete(reactor.id);

  const code = (n) => ({ code: `module.exports = async (req) => ({ body: ${n}, headers: {} })` });
  const proxy = await management.proxies.create({ name: 'versions', destination_url: world.destination, request_transform: code(1) });
  await management.proxies.patch(proxy.id, { request_transform: code(2) });
  const [, first] = await management.proxies.versions(proxy.id);
  assert.deepEqual((await management.proxies.restore(proxy.id, first.number)).request_transform, code(1));
  await management.proxies.delete(proxy.id);
});

test('events and webhooks', async () => {
  await vault.tokens.create({ id: 'with-event', type: 'token', data: 1 });
  const [event] = await collect(management.events.list({ entity_id: 'with-event' }));
  assert.equal(event.type, 'token.created');
  const made = await management.webhooks.create({ name: 'shop', url: world.destination, events: ['token.*'] });
  assert.match(made.secret, /^whsec_/);
  assert.equal((await management.webhooks.get(made.id)).name, 'shop');
  assert.equal((await management.webhooks.replace(made.id, { name: 'shop 2', url: world.destination, events: ['webhook.test'] })).name, 'shop 2');
  assert.notEqual((await management.webhooks.rotateSecret(made.id)).secret, made.secret);
  const delivery = await management.webhooks.test(made.id);
  assert.ok((await collect(management.webhooks.deliveries(made.id))).some((d) => d.id === delivery.id));
  assert.equal((await management.webhooks.resend(made.id, delivery.id)).id, delivery.id);
  assert.ok((await collect(management.webhooks.list())).some((w) => w.id === made.id));
  await management.webhooks.delete(made.id);
});

test('the log as a stream, a file and a proof', async () => {
  const streamed = [];
  for await (const { entry } of management.logs.stream({ entity_id: 'logged', follow: false })) streamed.push(entry);
  assert.ok(streamed.every((e) => e.entity_id === 'logged'));
  const csv = await (await management.logs.export({ entity_id: 'logged', format: 'csv' })).text();
  assert.match(csv, /^created_at,/);
  assert.ok((await management.logs.integrity()).unsealed >= 0);
  const job = await management.logs.verify();
  assert.equal((await management.logs.verification(job.id)).id, job.id);
});
