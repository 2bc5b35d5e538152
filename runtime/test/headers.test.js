'use strict';

const assert = require('node:assert/strict');
const test = require('node:test');

const { runtime: { headersObject } } = require('./built');

test('look-ups ignore case, names are canonical', () => {
  const h = headersObject({ 'content-type': 'text/plain', 'X-REQUEST-id': '1', etag: 'e' });
  assert.deepEqual(Object.keys(h), ['Content-Type', 'X-Request-Id', 'Etag']);
  assert.equal(h['content-type'], 'text/plain');
  assert.equal(h['CONTENT-TYPE'], 'text/plain');
  assert.ok('x-request-ID' in h);
  assert.ok(h.hasOwnProperty('x-request-id'));
  assert.ok(!('accept' in h));
  assert.equal(h.accept, undefined);
  assert.equal(JSON.stringify(h), '{"Content-Type":"text/plain","X-Request-Id":"1","Etag":"e"}');
  assert.deepEqual({ ...h, Etag: 'f' }, { 'Content-Type': 'text/plain', 'X-Request-Id': '1', Etag: 'f' });
  const { etag, ...rest } = h;
  assert.equal(etag, 'e');
  assert.deepEqual(Object.keys(rest), ['Content-Type', 'X-Request-Id', 'Etag'], 'rest takes names as they are written');
});

test('what is set or deleted in any case is one header', () => {
  const h = headersObject({ 'Content-Type': 'a' });
  h['content-type'] = 'b';
  h['x-new'] = 'c';
  h['X-NEW'] = 'd';
  assert.deepEqual({ ...h }, { 'Content-Type': 'b', 'X-New': 'd' });
  assert.equal(delete h['CONTENT-type'], true);
  assert.deepEqual({ ...h }, { 'X-New': 'd' });
  Object.assign(h, { 'x-new': 'e' });
  Object.defineProperty(h, 'x-new', { value: 'f' });
  assert.deepEqual({ ...h }, { 'X-New': 'f' });
});

test('headers named like members of objects are headers', () => {
  const h = headersObject(JSON.parse('{"__proto__":"a","constructor":"b"}'));
  assert.equal(h.constructor, 'b');
  assert.equal(h.__proto__, 'a');
  assert.equal(typeof h.toString, 'function');
  assert.deepEqual(Object.keys(headersObject()), []);
});
