'use strict';

const assert = require('node:assert/strict');
const test = require('node:test');

const { runtime: { describeError, errors: classes, jsonText } } = require('./built');

const table = [
  ['BadRequestError', 400, 'Bad Request'],
  ['InvalidReactorConfigurationError', 400, 'Invalid Reactor Configuration'],
  ['AuthenticationError', 401, 'Authentication Failed'],
  ['InvalidPaymentMethodError', 402, 'Invalid Payment Method'],
  ['AuthorizationError', 403, 'Forbidden'],
  ['RateLimitError', 429, 'Rate Limit Exceeded'],
  ['ReactorRuntimeError', 500, 'Reactor Runtime Error'],
  ['ServiceUnavailableError', 503, 'Service Unavailable'],
];

for (const [name, status, message] of table) {
  test(`${name} is a ${status}`, () => {
    const thrown = new classes[name]('why');
    assert.ok(thrown instanceof Error);
    assert.equal(classes[name].name, name);
    assert.deepEqual(describeError(thrown), { name, status, message, errors: { error: ['why'] } });
    assert.deepEqual(describeError(new classes[name]()), { name, status, message });
    assert.deepEqual(describeError({ name, status, message: 'of another make' }), { name, status, message, errors: { error: ['of another make'] } });
    assert.deepEqual(describeError({ name, status: 418, message: 'm' }), { name, message: 'm' });
    assert.deepEqual(describeError({ name, status: String(status), message: 'm' }), { name, message: 'm' });
  });
}

test('the argument of an error becomes its errors', () => {
  const circular = {};
  circular.self = circular;
  for (const [argument, want] of [
    ['one', { error: ['one'] }],
    [['one', 2, { a: 1 }, null], { error: ['one', '2', '{"a":1}', 'null'] }],
    [new TypeError('inner'), { error: ['inner'] }],
    [{ number: ['bad', 'short'], cvc: 'missing', n: 5 }, { number: ['bad', 'short'], cvc: ['missing'], n: ['5'] }],
    [{ e: [new Error('inner')] }, { e: ['inner'] }],
    [5, { error: ['5'] }],
    [{ response: circular, sum: { of: 5n } }, { response: ['[object Object]'], sum: ['[object Object]'] }],
  ]) {
    assert.deepEqual(describeError(new classes.BadRequestError(argument)).errors, want);
  }
});

test('CustomHttpResponseError is what it was given', () => {
  const { CustomHttpResponseError } = classes;
  const thrown = new CustomHttpResponseError({ status: 418, headers: { 'X-A': 'b', n: 5, list: ['a', 'b'], no: { x: 1 }, none: null }, body: { a: [1] } });
  assert.deepEqual(describeError(thrown), {
    name: 'CustomHttpResponseError', status: 418, message: 'Custom HTTP Response',
    custom: { status: 418, headers: { 'X-A': 'b', n: '5', list: 'a, b' }, body: { a: [1] } },
  });
  assert.deepEqual(describeError(new CustomHttpResponseError({ status: 204 })).custom, { status: 204, headers: {}, body: {} });
  assert.equal(describeError(new CustomHttpResponseError({ status: 200, body: 'text' })).custom.body, 'text');
  assert.equal(describeError(new CustomHttpResponseError({ status: 200, body: 0 })).custom.body, 0);
  assert.deepEqual(describeError({ name: 'CustomHttpResponseError', status: 201, headers: { a: 'b' }, body: [1] }).custom, { status: 201, headers: { a: 'b' }, body: [1] });
  for (const status of [200, 599]) assert.equal(describeError(new CustomHttpResponseError({ status })).custom.status, status);
  for (const status of [99, 100, 101, 199, 600, 200.5, '200', NaN, undefined, null]) {
    assert.throws(() => new CustomHttpResponseError({ status }), RangeError);
    assert.equal(describeError({ name: 'CustomHttpResponseError', status, message: 'm' }).custom, undefined);
  }
  const circular = {};
  circular.self = circular;
  for (const body of [circular, { big: 5n }, { toJSON() { throw new Error('no'); } }]) {
    const got = describeError(new CustomHttpResponseError({ status: 200, body }));
    assert.deepEqual(got, { name: 'CustomHttpResponseError', message: 'the headers or the body of a CustomHttpResponseError are not JSON' });
  }
});

test('any other throw is its name and message', () => {
  class OwnError extends Error {
    constructor(m) {
      super(m);
      this.name = 'OwnError';
      this.status = 400;
    }
  }
  for (const [thrown, want] of [
    [new Error('m'), { name: 'Error', message: 'm' }],
    [new TypeError('m'), { name: 'TypeError', message: 'm' }],
    [new OwnError('m'), { name: 'OwnError', message: 'm' }],
    [new Error(), { name: 'Error', message: 'Error' }],
    ['text', { name: 'Error', message: 'text' }],
    ['', { name: 'Error', message: '' }],
    [5, { name: 'Error', message: '5' }],
    [5n, { name: 'Error', message: '5' }],
    [null, { name: 'Error', message: 'null' }],
    [undefined, { name: 'Error', message: 'undefined' }],
    [Symbol('s'), { name: 'Error', message: 'Symbol(s)' }],
    [{ message: { a: 1 } }, { name: 'Error', message: '[object Object]' }],
    [{ name: 5, message: 6 }, { name: 'Error', message: '6' }],
    [{ name: 'n'.repeat(129), message: 'm' }, { name: 'Error', message: 'm' }],
    [new Error('a\ud800b'), { name: 'Error', message: 'a\ufffdb' }],
  ]) {
    assert.deepEqual(describeError(thrown), want);
  }
});

test('what is too long is left out whole', () => {
  const long = '4242424242424242 '.repeat(2000);
  const words = 'the message is too long to be shown';
  assert.equal(describeError(new Error(long)).message, words);
  assert.deepEqual(describeError(new classes.BadRequestError(long.repeat(3))).errors, { error: [words] });
});

test('hostile throws are described all the same', () => {
  const boom = () => { throw new Error('boom'); };
  const revoked = Proxy.revocable({}, {});
  revoked.revoke();
  const traps = new Proxy({}, { get: boom, has: boom, ownKeys: boom, getPrototypeOf: boom, getOwnPropertyDescriptor: boom });
  const circular = new Error('c');
  circular.errors = { circular };
  circular.cause = circular;
  const deep = [];
  for (let i = 0, at = deep; i < 50000; i++) at = at[at.push([]) - 1];
  const hostile = [
    traps, revoked.proxy, circular,
    Object.create(null),
    { get name() { throw null; }, get status() { return boom(); }, get message() { return boom(); }, get stack() { return boom(); } },
    { toString: boom, [Symbol.toPrimitive]: boom },
    { message: { toString: boom } },
    { message: Symbol('m') },
    { name: 'BadRequestError', status: 400, errors: traps },
    { name: 'BadRequestError', status: 400, errors: revoked.proxy },
    { name: 'BadRequestError', status: 400, errors: { a: traps } },
    { name: 'BadRequestError', status: 400, errors: { a: [Symbol('x'), 5n, circular, deep] } },
    { name: 'BadRequestError', status: 400, errors: () => {} },
    { name: 'CustomHttpResponseError', status: 200, headers: traps, body: deep },
    { name: 'CustomHttpResponseError', status: 200, headers: 'text', body: () => {} },
    { name: 'CustomHttpResponseError', status: 200, headers: JSON.parse('{"__proto__":"x"}'), body: JSON.parse('{"__proto__":{"a":1}}') },
    boom, class {}, Promise.resolve(), new Proxy(boom, {}),
  ];
  for (const [i, thrown] of hostile.entries()) {
    const got = describeError(thrown);
    assert.equal(typeof got.name, 'string', `throw ${i}`);
    assert.equal(typeof got.message, 'string', `throw ${i}`);
    assert.deepEqual(JSON.parse(jsonText(got)), JSON.parse(JSON.stringify(got)), `throw ${i}`);
    assert.equal(got.stack, undefined);
  }
});

test('code that broke the language is described too', () => {
  const { replace } = String.prototype;
  const { get } = Map.prototype;
  try {
    String.prototype.replace = () => { throw new Error('boom'); };
    Map.prototype.get = String.prototype.replace;
    assert.deepEqual(describeError(new Error('m')), { name: 'Error', message: 'the error cannot be read' });
    assert.deepEqual(describeError('m'), { name: 'Error', message: 'the error cannot be read' });
  } finally {
    String.prototype.replace = replace;
    Map.prototype.get = get;
  }
});

test('JSON for a strict reader has no halves of characters', () => {
  assert.equal(jsonText({ a: 'x\ud800y\udc00', '\udfff': '😀', b: '\\ud800', c: '\\\ud800' }), '{"a":"x\\ufffdy\\ufffd","\\ufffd":"😀","b":"\\\\ud800","c":"\\\\\\ufffd"}');
  assert.equal(jsonText(undefined), undefined);
});
