// What happens when things go wrong, against servers that misbehave.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { test } from 'node:test';
import { inspect } from 'node:util';
import { ApiError, ConnectionError, Tokenkeep, TokenkeepError } from 'tokenkeep';
import { collect, refused } from './world.mjs';

const key = 'key_test_pvt_planted';

/** Starts a server that gives its answers one after the other, the last one for ever, and calls use with a client of it. */
async function serving(answers, use, options = {}) {
  const requests = [];
  const server = createServer(async (request, response) => {
    let body = '';
    for await (const part of request) body += part;
    requests.push({ method: request.method, url: request.url, headers: request.headers, body });
    const { status = 200, headers = {}, body: text = '{}', cut, hang } = answers[Math.min(requests.length, answers.length) - 1];
    if (hang) return;
    if (cut) return request.socket.destroy();
    response.writeHead(status, { 'Content-Type': 'application/json', ...headers });
    response.end(status === 204 ? undefined : text);
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  try {
    const baseUrl = `http://127.0.0.1:${server.address().port}`;
    return await use(new Tokenkeep({ baseUrl, key, ...options }), requests, baseUrl);
  } finally {
    server.closeAllConnections();
    server.close();
  }
}

/** Calls begins with each wait for a retry, which then takes as long as begins says. */
async function waiting(begins, run) {
  const real = globalThis.setTimeout;
  globalThis.setTimeout = (f, ms, ...rest) => real(f, new Error().stack.includes('/dist/retry.js') ? begins(ms) : ms, ...rest);
  try {
    return await run();
  } finally {
    globalThis.setTimeout = real;
  }
}

/** Runs waits for retries at once, and says how long they would have been. */
async function hurried(run) {
  const waits = [];
  await waiting((ms) => (waits.push(ms), 0), run);
  return waits;
}

test('a call is repeated only where that does no harm', async (t) => {
  const look = (c) => c.tenant.get();
  const post = (c) => c.keys.create('a');
  const put = (c) => c.tenant.replace({ name: 'n' });
  const run = (c) => c.reactors.react('a');
  const search = (c) => c.tokens.searchPage('type:card');
  const remove = (c) => c.tokens.delete('a');
  const health = (c) => c.health();
  const forward = (c) => c.proxies.call({ proxyKey: 'p', json: 1 }).then((r) => assert.equal(r.status, 200));
  const fine = { status: 200 };
  const cut = { cut: true };
  const inFlight = { status: 409, headers: { 'Retry-After': '1' } };
  const status = (n) => ({ status: n });
  const cases = {
    'success at once': [look, [fine], 1, true],
    'a look, after 503': [look, [status(503), fine], 2, true],
    'a look, after a cut': [look, [cut, fine], 2, true],
    'a post, after 500': [post, [status(500), fine], 2, true],
    'a post, after a cut': [post, [cut, fine], 2, true],
    'a post, behind its own cut': [post, [cut, inFlight, fine], 3, true],
    'a search, after a cut': [search, [cut, fine], 2, true],
    'a put, after two': [put, [status(502), status(504), fine], 3, true],
    'a deletion': [remove, [status(503), status(204)], 2, true],
    '408': [look, [status(408), fine], 2, true],
    '429': [look, [status(429), fine], 2, true],
    'not for ever': [post, [inFlight], 4, false],
    'no more than three cuts': [look, [cut], 4, false],
    'as many as asked': [look, [status(503)], 6, false, { retries: 5 }],
    none: [look, [status(503), fine], 1, false, { retries: 0 }],
    'not a look in the way': [look, [inFlight, fine], 1, false],
    'a run, after a cut': [run, [cut, inFlight, fine], 3, true],
    'not a run, after 503': [run, [status(503), fine], 1, false],
    'not a run, after 500': [run, [status(500), fine], 1, false],
    'not what is forwarded, after a cut': [forward, [cut, fine], 1, false],
    'not what is forwarded, after 503': [forward, [status(503), fine], 1, false],
    'not health': [health, [status(503), fine], 1, false],
    'not 400': [post, [status(400), fine], 1, false],
    'not 401': [look, [status(401), fine], 1, false],
    'not 409': [post, [status(409), fine], 1, false],
    'not 422': [post, [status(422), fine], 1, false],
    'not 501': [look, [status(501), fine], 1, false],
    'not when asked to wait too long': [look, [{ status: 503, headers: { 'Retry-After': '61' } }, fine], 1, false],
  };
  for (const [name, [call, answers, tries, ok, options]] of Object.entries(cases)) {
    await t.test(name, () =>
      serving(
        answers,
        async (c, requests) => {
          await hurried(async () => {
            const outcome = await call(c).then(() => true, () => false);
            assert.deepEqual([outcome, requests.length], [ok, tries]);
          });
          const keys = new Set(requests.map((r) => r.headers['svc-idempotency-key']));
          const keyed = [post, put, run].includes(call);
          assert.deepEqual([keys.size, keys.has(undefined)], [1, !keyed], 'the idempotency keys of the tries');
        },
        options,
      ),
    );
  }
});

test('a retry waits as long as the server asks, and brings the same key and body', async () => {
  const answers = [{ status: 503, headers: { 'Retry-After': '1' } }, { status: 201, body: '{"id":"a"}' }];
  await serving(answers, async (c, requests) => {
    const waits = await hurried(async () => assert.deepEqual(await c.tokens.create({ type: 'token', data: 'x' }), { id: 'a' }));
    assert.deepEqual(waits, [1000]);
    const [first, second] = requests;
    assert.match(first.headers['svc-idempotency-key'], /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
    assert.equal(second.headers['svc-idempotency-key'], first.headers['svc-idempotency-key']);
    assert.equal(second.body, first.body);
    await c.tokens.create({ type: 'token', data: 'x' });
    assert.notEqual(requests[2].headers['svc-idempotency-key'], first.headers['svc-idempotency-key']);
  });
});

test('waits grow, and have chance in them', async () => {
  await serving([{ cut: true }], async (c) => {
    const waits = await hurried(() => refused(c.tenant.get()));
    assert.equal(waits.length, 3);
    waits.forEach((ms, i) => assert.ok(ms >= 125 * 2 ** i && ms <= 250 * 2 ** i, `wait ${i} is ${ms}`));
  });
  const soon = new Date(Date.now() + 40_000).toUTCString();
  await serving([{ status: 429, headers: { 'Retry-After': soon } }, {}], async (c) => {
    const [ms] = await hurried(() => c.tenant.get());
    const left = Date.parse(soon) - Date.now();
    assert.ok(ms >= left && ms <= 40_000, `a date was read as ${ms}`);
  });
});

test('a call ends when its signal or its time says so', async () => {
  await serving([{ hang: true }], async (c, requests) => {
    const controller = new AbortController();
    const reason = new Error('the user left');
    const call = refused(c.tokens.get('a', { signal: controller.signal }));
    while (requests.length === 0) await new Promise(setImmediate);
    controller.abort(reason);
    assert.equal(await call, reason);
    assert.equal(await refused(c.tokens.get('a', { signal: controller.signal })), reason);
    assert.equal(requests.length, 1, 'what was ended before is not sent');

    const late = await refused(c.tokens.get('a', { timeout: 50 }));
    assert.ok(late instanceof ConnectionError);
    assert.deepEqual([late.kind, late.operation], ['timeout', 'GET /tokens/{id}']);
    assert.equal((await refused(c.proxies.call({ proxyKey: 'p', timeout: 50 }))).kind, 'timeout');
    assert.equal((await refused(collect(c.tokens.list({}, { timeout: 50 })))).kind, 'timeout');
  });
  await serving([{ status: 503, headers: { 'Retry-After': '30' } }], async (c) => {
    const controller = new AbortController();
    const begins = (ms) => (queueMicrotask(() => controller.abort()), ms);
    const ended = await waiting(begins, () => refused(c.tokens.get('a', { signal: controller.signal })));
    assert.equal(ended.name, 'AbortError');
    assert.equal((await refused(c.tokens.get('a', { timeout: 300 }))).kind, 'timeout', 'waits end, too');
  });
});

test('the key is in no error, and nothing prints it', async () => {
  const shown = (value) => inspect(value, { depth: 20, showHidden: true, getters: true }) + JSON.stringify(value) + String(value?.stack);
  const planted = '4111111111111111';
  const echo = JSON.stringify({ title: key, status: 400, detail: key, errors: { [key]: [key] } });
  const echoed = { status: 400, body: echo, headers: { 'SVC-TRACE-ID': key } };
  await serving([echoed], async (c, requests) => {
    const e = await refused(c.tokens.create({ id: planted, type: 'card', data: { number: planted } }, { idempotencyKey: planted }));
    assert.equal(requests[0].headers['svc-api-key'], key);
    assert.ok(e instanceof ApiError);
    for (const value of [c, c.tokens, c.withKey(key), e]) {
      const text = shown(value);
      assert.ok(!text.includes(key) && !text.includes(planted), text);
    }
    assert.throws(() => structuredClone({ c }).c.tokens.get('a'), TypeError);
  });
  const ofTheProxy = { status: 400, body: JSON.stringify({ proxy_error: { title: 'no', status: 400, detail: 'not so', errors: {} } }) };
  await serving([ofTheProxy], async (c) => {
    const e = await refused(c.proxies.call({ proxyKey: planted, path: `/${planted}`, json: planted }));
    assert.equal(e.detail, 'not so');
    assert.ok(!shown(e).includes(planted) && !shown(e).includes(key));
  });
  await serving([{ cut: true }], async (c) => {
    const e = await refused(c.withKey(key).tokens.get(planted));
    assert.ok(e instanceof ConnectionError && e.code, 'the code of the engine is kept');
    assert.ok(!shown(e).includes(planted) && !shown(e).includes(key));
    assert.equal(e.cause, undefined);
  }, { retries: 0 });
  for (const headers of [{ 'X-Mine': `${planted}\nx` }, { [`${planted}\n`]: 'x' }]) {
    const c = new Tokenkeep({ baseUrl: 'http://localhost:1', key });
    const e = await refused(c.proxies.call({ proxyKey: 'p', headers }));
    assert.equal(e.kind, 'invalid');
    assert.ok(!shown(e).includes(planted));
  }
});

test('answers that are not the server’s are told apart', async () => {
  const cases = {
    'a page of a load balancer': [{ status: 502, body: '<h1>oops</h1>', headers: { 'Content-Type': 'text/html' } }, 'unavailable'],
    'a redirect': [{ status: 302, headers: { Location: 'http://127.0.0.1:1/' } }, 'other'],
    'a success that is not JSON': [{ status: 200, body: '<p>', headers: { 'Content-Type': 'text/html' } }, 'other'],
    'a success that is broken JSON': [{ status: 200, body: '{' }, 'other'],
    'a success that is too long': [{ status: 200, body: JSON.stringify('x'.repeat(2000)) }, 'other'],
    'an error that is too long': [{ status: 404, body: JSON.stringify({ status: 404, title: 'x'.repeat(2000) }) }, 'not_found'],
    'an error of another status': [{ status: 404, body: '{"status":400,"title":"oops"}' }, 'not_found'],
  };
  for (const [name, [answer, kind]] of Object.entries(cases)) {
    await serving([answer], async (c) => {
      const e = await refused(c.tokens.get('a'));
      assert.ok(e instanceof TokenkeepError, name);
      assert.equal(e.kind, kind, name);
      assert.ok(!e.message.includes('oops') && e.message.length < 400, `${name}: ${e.message}`);
    }, { retries: 0, maxResponse: 1000 });
  }
  const noisy = { status: 400, title: 'a\nb\u2028c', detail: '', errors: { x: ['y', 1], z: 'no list' } };
  await serving([{ status: 400, body: JSON.stringify(noisy) }], async (c) => {
    const e = await refused(c.tokens.get('a'));
    assert.match(e.message, /: 400 a\?b\?c; x: y$/);
    assert.deepEqual(e.errors, { x: ['y'] });
  });
  // An answer of the proxy's own that is large, or not in its form, is handed on as it came.
  for (const body of [JSON.stringify({ proxy_error: 'x'.repeat(2000) }), '{"mine":1}']) {
    await serving([{ status: 418, body }], async (c) => {
      assert.equal(await (await c.proxies.call({ proxyKey: 'p' })).text(), body);
    }, { maxResponse: 1000 });
  }
});

test('addresses, headers and queries are what they should be', async () => {
  await serving([{}], async (_, requests, baseUrl) => {
    const last = () => requests.at(-1);
    const c = new Tokenkeep({ baseUrl: `${baseUrl}/vault/`, key, headerPrefix: 'BT' });
    await c.tokens.get('a/b ü%?#');
    assert.equal(last().url, '/vault/tokens/a%2Fb%20%C3%BC%25%3F%23');
    assert.equal(last().headers['bt-api-key'], key);
    assert.equal(last().headers['svc-api-key'], undefined);
    await c.tokens.page({ id: ['a', 'b&c'], metadata: { order: '1 2' }, container: '/pci/*', page: 2, size: 7 });
    assert.equal(last().url, '/vault/tokens?id=a&id=b%26c&metadata.order=1+2&container=%2Fpci%2F*&page=2&size=7');
    await c.tokens.update('abc', { metadata: { a: null } }, { traceId: 't-1' });
    assert.deepEqual(
      [last().method, last().headers['content-type'], last().headers['bt-trace-id'], last().body],
      ['PATCH', 'application/merge-patch+json', 't-1', '{"metadata":{"a":null}}'],
    );
    await c.tokenize(null);
    assert.equal(last().body, 'null');
    await c.sessions.create();
    assert.deepEqual([last().body, last().headers['content-type']], ['', undefined]);
    await c.health();
    assert.equal(last().headers['bt-api-key'], undefined);
    await c.proxies.call({ proxyKey: 'p', path: '/a%2Fb/?x=1', headers: { 'BT-API-KEY': 'theirs' } });
    assert.deepEqual([last().method, last().url, last().headers['bt-proxy-key'], last().headers['bt-api-key']], ['GET', '/vault/proxy/a%2Fb/?x=1', 'p', key]);

    const before = requests.length;
    const cyclic = {};
    cyclic.self = cyclic;
    for (const [name, call] of Object.entries({
      'no id': () => c.tokens.get(''),
      'a dot': () => c.tokens.get('.'),
      'two dots': () => c.keys.delete('a', '..'),
      'half a character': () => c.tokens.get('\ud800'),
      'an empty filter': () => c.tokens.page({ id: [] }),
      'nothing to tokenize': () => c.tokenize(undefined),
      'a cycle': () => c.tokenize(cyclic),
      'a large number': () => c.tokenize(1n),
      'an idempotency key with a space': () => c.sessions.create({ idempotencyKey: 'a b' }),
      'a long idempotency key': () => c.sessions.create({ idempotencyKey: 'a'.repeat(201) }),
      'a trace id with a line': () => c.tokens.get('a', { traceId: 'a\nb' }),
      'no time': () => c.tokens.get('a', { timeout: 0 }),
      'a path that climbs': () => c.proxies.call({ proxyKey: 'p', path: '/../tokens' }),
      'a path that climbs, encoded': () => c.proxies.call({ proxyKey: 'p', path: '/%2e%2e/tokens' }),
      'a path that climbs behind a tab': () => c.proxies.call({ proxyKey: 'p', path: '/.\t./tokens' }),
      'a path that is another host': () => c.proxies.call({ proxyKey: 'p', path: '.example' }),
      'a path with a fragment': () => c.proxies.call({ proxyKey: 'p', path: '/a#b' }),
      'a look with a body': () => c.proxies.call({ proxyKey: 'p', method: 'get', json: 1 }),
      'a method that is none': () => c.proxies.call({ proxyKey: 'p', method: 'G T' }),
      'a path with a space': () => c.proxies.call({ proxyKey: 'p', path: '/a b' }),
    })) {
      assert.equal((await refused(Promise.resolve().then(call))).kind, 'invalid', name);
    }
    assert.equal(requests.length, before, 'nothing was sent');
  });
});

test('settings are checked', () => {
  for (const baseUrl of ['https://vault.example', 'https://vault.example/a/', 'http://localhost:8420', 'http://127.0.0.1', 'http://[::1]:1', 'http://a.localhost']) {
    assert.ok(new Tokenkeep({ baseUrl, key }));
  }
  assert.ok(new Tokenkeep({ baseUrl: 'http://vault.example', allowHttp: true }));
  for (const [name, options] of Object.entries({
    'no address': { baseUrl: '' },
    'no scheme': { baseUrl: 'vault.example' },
    'another scheme': { baseUrl: 'ftp://vault.example' },
    'a user': { baseUrl: 'https://planted:planted@vault.example' },
    'a query': { baseUrl: 'https://vault.example?planted' },
    'a fragment': { baseUrl: 'https://vault.example#planted' },
    http: { baseUrl: 'http://vault.example' },
    'http to a name that looks like this machine': { baseUrl: 'http://127.0.0.1.planted.example' },
    'http to another that does': { baseUrl: 'http://localhost.planted.example' },
    'a key with a line': { baseUrl: 'https://vault.example', key: 'planted\n' },
    'a key that is null': { baseUrl: 'https://vault.example', key: null },
    'an empty key': { baseUrl: 'https://vault.example', key: '' },
    'a prefix with a colon': { baseUrl: 'https://vault.example', headerPrefix: 'planted:' },
    'too many retries': { baseUrl: 'https://vault.example', retries: 21 },
    'half a retry': { baseUrl: 'https://vault.example', retries: 0.5 },
    'no time': { baseUrl: 'https://vault.example', timeout: -1 },
    'no answers': { baseUrl: 'https://vault.example', maxResponse: 0 },
  })) {
    assert.throws(() => new Tokenkeep(options), (e) => e instanceof TokenkeepError && e.kind === 'invalid' && !inspect(e).includes('planted'), name);
  }
});
