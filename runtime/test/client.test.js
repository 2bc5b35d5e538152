'use strict';

const assert = require('node:assert/strict');
const test = require('node:test');

const { runtime: { createClient } } = require('./built');

// scripted returns a client whose calls are answered with the given answer, and
// the list of the calls that were made.
function scripted(answer = {}, options) {
  const calls = [];
  const client = createClient(async (call) => {
    calls.push(call);
    return { status: 200, headers: {}, ...answer, body: typeof answer.body === 'object' ? JSON.stringify(answer.body) : answer.body };
  }, options);
  return { client, calls };
}

const json = { 'Content-Type': 'application/json' };
const stored = {
  id: 't', type: 'card', tenant_id: 'x', data: { expiration_month: 1, someName: 2 }, metadata: { user_id: '1' }, mask: { expiration_month: 'x' },
  search_indexes: ['a'], fingerprint_expression: 'f', card: { account_number_last4: '4242', expiration_month: 1 }, containers: ['/a_b/'],
  enrichments: { bin_details: { card_brand: 'v' } },
};
const shown = {
  id: 't', type: 'card', tenantId: 'x', data: { expiration_month: 1, someName: 2 }, metadata: { user_id: '1' }, mask: { expiration_month: 'x' },
  searchIndexes: ['a'], fingerprintExpression: 'f', card: { accountNumberLast4: '4242', expirationMonth: 1 }, containers: ['/a_b/'],
  enrichments: { binDetails: { cardBrand: 'v' } },
};
const token = {
  type: 'card', data: { someName: 1 }, metadata: { userId: '1' }, mask: { someName: 'x' }, searchIndexes: ['{{ data }}'], deduplicateToken: true,
  expiresAt: new Date(0), privacy: { impactLevel: 'high' },
};
const sent = {
  type: 'card', data: { someName: 1 }, metadata: { userId: '1' }, mask: { someName: 'x' }, search_indexes: ['{{ data }}'], deduplicate_token: true,
  expires_at: '1970-01-01T00:00:00.000Z', privacy: { impact_level: 'high' },
};
const page = { pagination: { total_items: 1, page_number: 1, page_size: 20, total_pages: 1 }, data: [stored] };
const pageShown = { pagination: { totalItems: 1, pageNumber: 1, pageSize: 20, totalPages: 1 }, data: [shown] };

// A row: what it shows, the call, the answer, the request that is made, what the
// code gets.
const rows = [
  ['tokens.create', (bt) => bt.tokens.create(token), { status: 201, body: stored }, { method: 'POST', path: '/tokens', headers: json, body: sent }, shown],
  ['tokens.retrieve', (bt) => bt.tokens.retrieve('a/b c'), { body: stored }, { method: 'GET', path: '/tokens/a%2Fb%20c', headers: {} }, shown],
  ['tokens.update', (bt) => bt.tokens.update('t', { data: { aB: 1 }, searchIndexes: [] }), { body: stored },
    { method: 'PATCH', path: '/tokens/t', headers: { 'Content-Type': 'application/merge-patch+json' }, body: { data: { aB: 1 }, search_indexes: [] } }, shown],
  ['tokens.delete', (bt) => bt.tokens.delete('t'), { status: 204 }, { method: 'DELETE', path: '/tokens/t', headers: {} }, undefined],
  ['tokens.list', (bt) => bt.tokens.list(), { body: page }, { method: 'GET', path: '/tokens', headers: {} }, pageShown],
  ['tokens.list by query', (bt) => bt.tokens.list({ id: ['a', 'b&c'], type: 'card', page: 2, metadata: { userId: '1 2' }, none: undefined, createdAt: 'x' }), { body: page },
    { method: 'GET', path: '/tokens?id=a&id=b%26c&type=card&page=2&metadata.userId=1+2&created_at=x', headers: {} }, pageShown],
  ['tokens.search', (bt) => bt.tokens.search({ query: 'type:card', size: 5 }), { body: page },
    { method: 'POST', path: '/tokens/search', headers: json, body: { query: 'type:card', size: 5 } }, pageShown],
  ['tokenize', (bt) => bt.tokenize({ firstName: 'x', list: [{ searchIndexes: [] }] }), { body: { first_name: 'id', aB: 1 } },
    { method: 'POST', path: '/tokenize', headers: json, body: { firstName: 'x', list: [{ searchIndexes: [] }] } }, { first_name: 'id', aB: 1 }],
  ['detokenize', (bt) => bt.detokenize({ someName: '{{ t }}' }), { body: { someName: 'v', other_name: 1 } },
    { method: 'POST', path: '/detokenize', headers: json, body: { someName: '{{ t }}' } }, { someName: 'v', other_name: 1 }],
  ['reactors.react', (bt) => bt.reactors.react('r', { args: { someName: 1 }, callbackUrl: 'u', timeoutMs: 10000 }), { body: { raw: { a_b: 1 }, tokens: { c_d: 2 } } },
    { method: 'POST', path: '/reactors/r/react', headers: json, body: { args: { someName: 1 }, callback_url: 'u', timeout_ms: 10000 } }, { raw: { a_b: 1 }, tokens: { c_d: 2 } }],
  ['options', (bt) => bt.tokens.retrieve('t', { apiKey: 'key_never_sent', correlationId: 'c', idempotencyKey: 'i' }), { body: stored },
    { method: 'GET', path: '/tokens/t', headers: { 'SVC-TRACE-ID': 'c', 'SVC-IDEMPOTENCY-KEY': 'i' } }, shown],
  ['proxy.get', (bt) => bt.proxy.get({ path: 'a/b', query: { x: '1', 'bt-proxy-key': 'k' }, headers: { 'BT-PROXY-URL': 'https://example.com', 'x-own': 'v', 'SVC-API-KEY': 'no' } }), { body: { a_b: 1 } },
    { method: 'GET', path: '/proxy/a/b?x=1&svc-proxy-key=k', headers: { 'Svc-Proxy-Url': 'https://example.com', 'X-Own': 'v' } }, { a_b: 1 }],
  ['proxy.get without anything', (bt) => bt.proxy.get(), { body: 'plain text' }, { method: 'GET', path: '/proxy', headers: {} }, 'plain text'],
  ['proxy.post', (bt) => bt.proxy.post({ path: '/a?b=1', query: { c: '2' }, headers: { 'bt-proxy-key': 'k', 'content-type': 'application/vnd.x+json' }, body: { aB: '{{ t }}' }, idempotencyKey: 'i' }), { status: 201, body: { ok: true } },
    { method: 'POST', path: '/proxy/a?b=1&c=2', headers: { 'Svc-Idempotency-Key': 'i', 'Svc-Proxy-Key': 'k', 'Content-Type': 'application/vnd.x+json' }, body: { aB: '{{ t }}' } }, { ok: true }],
  ['proxy.put', (bt) => bt.proxy.put({ body: new URLSearchParams({ a: 'b' }) }), {}, { method: 'PUT', path: '/proxy', headers: { 'Content-Type': 'application/x-www-form-urlencoded' }, text: 'a=b' }, undefined],
  ['proxy.patch', (bt) => bt.proxy.patch({ body: '<a/>', headers: { 'Content-Type': 'text/xml' } }), { body: '<b/>' }, { method: 'PATCH', path: '/proxy', headers: { 'Content-Type': 'text/xml' }, text: '<a/>' }, '<b/>'],
  ['proxy.delete', (bt) => bt.proxy.delete({ path: '/x' }), { status: 204 }, { method: 'DELETE', path: '/proxy/x', headers: {} }, undefined],
];

for (const [name, use, answer, want, got] of rows) {
  test(`${name} has the shape that is known`, async () => {
    const { client, calls } = scripted(answer);
    assert.deepEqual(await use(client), got);
    assert.equal(calls.length, 1);
    const { text, ...request } = want;
    const { body, ...made } = calls[0];
    assert.deepEqual({ ...made, ...(body !== undefined && text === undefined ? { body: JSON.parse(body) } : {}) }, request);
    if (text !== undefined) assert.equal(body, text);
    if (body !== undefined) assert.equal(typeof body, 'string');
  });
}

test('the prefix of the server names its headers', async () => {
  const { client, calls } = scripted({ body: {} }, { headerPrefix: 'BT' });
  await client.tokenize({}, { correlationId: 'c' });
  await client.proxy.get({ headers: { 'BT-PROXY-URL': 'u', 'BT-API-KEY': 'no' } });
  assert.deepEqual(calls.map((c) => c.headers), [{ 'BT-TRACE-ID': 'c', 'Content-Type': 'application/json' }, { 'Bt-Proxy-Url': 'u' }]);
});

test('a proxied call can show the headers of its answer', async () => {
  const { client } = scripted({ headers: { 'content-type': 'application/json', 'x-own': 'v' }, body: { a: 1 } });
  const { data, headers } = await client.proxy.post({ includeResponseHeaders: true });
  assert.deepEqual(data, { a: 1 });
  assert.equal(headers['X-OWN'], 'v');
});

test('a refused call throws its status and body', async () => {
  for (const [answer, status, data] of [
    [{ status: 404, body: { title: 'Not Found', status: 404 } }, 404, { title: 'Not Found', status: 404 }],
    [{ status: 502, body: 'no JSON' }, 502, 'no JSON'],
    [{ status: 302 }, 302, undefined],
  ]) {
    const { client } = scripted(answer);
    for (const use of [() => client.tokens.retrieve('t'), () => client.proxy.get(), () => client.tokenize({})]) {
      await assert.rejects(use, (e) => e instanceof Error && e.name === 'BasisTheoryApiError' && e.status === status
        && JSON.stringify(e.data) === JSON.stringify(data) && e.message === `Request failed with status code ${status}`);
    }
  }
  const lost = createClient(() => { throw new Error('gone'); });
  await assert.rejects(lost.tokens.list(), { name: 'BasisTheoryApiError', status: -1, message: 'gone' });
});

test('arguments that would name something else are refused before a call', async () => {
  const { client, calls } = scripted();
  for (const id of ['', undefined, null, 5, {}]) {
    for (const use of [() => client.tokens.delete(id), () => client.tokens.retrieve(id), () => client.tokens.update(id, {}), () => client.reactors.react(id, {})]) {
      await assert.rejects(use, TypeError);
    }
  }
  await assert.rejects(client.proxy.post({ body: Buffer.from('x') }), TypeError);
  assert.equal(calls.length, 0);
});
