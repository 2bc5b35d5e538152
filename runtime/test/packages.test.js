'use strict';

const assert = require('node:assert/strict');
const http = require('node:http');
const test = require('node:test');

const packages = require('../packages');
const { modules, runtime } = require('./built');

const require_ = runtime.createRequire({ modules });

// served runs use with the address of a server that repeats what it is sent.
async function served(use) {
  const server = http.createServer((req, res) => {
    let body = '';
    req.on('data', (d) => { body += d; });
    req.on('end', () => {
      res.setHeader('Content-Type', 'application/json');
      res.end(JSON.stringify({ method: req.method, path: req.url, type: req.headers['content-type'], body }));
    });
  });
  await new Promise((resolve) => { server.listen(0, '127.0.0.1', resolve); });
  try {
    await use(`http://127.0.0.1:${server.address().port}`);
  } finally {
    server.close();
  }
}

// One real thing for every curated package, as reactor code would do it.
const doing = {
  axios: () => served(async (url) => {
    const axios = require_('axios');
    const { data, status } = await axios.post(`${url}/charge`, { amount: 5 }, { headers: { 'X-Key': 'k' } });
    assert.equal(status, 200);
    assert.deepEqual([data.method, data.path, data.body], ['POST', '/charge', '{"amount":5}']);
    assert.equal(axios.default, axios);
    assert.equal((await axios.create({ baseURL: url }).get('/x', { params: { a: 1 } })).data.path, '/x?a=1');
  }),
  'crypto-js': () => {
    const CryptoJS = require_('crypto-js');
    assert.equal(CryptoJS.AES.decrypt(CryptoJS.AES.encrypt('text', 'password').toString(), 'password').toString(CryptoJS.enc.Utf8), 'text');
    const abc = 'ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad';
    assert.equal(require_('crypto-js/sha256')('abc').toString(require_('crypto-js/enc-hex')), abc);
  },
  'csv-parse': async () => {
    const rows = [{ a: '1', b: '2' }];
    assert.deepEqual(require_('csv-parse/sync').parse('a,b\n1,2\n', { columns: true }), rows);
    assert.deepEqual(await new Promise((resolve, reject) => {
      require_('csv-parse').parse('a,b\n1,2\n', { columns: true }, (err, got) => (err ? reject(err) : resolve(got)));
    }), rows);
  },
  dayjs: () => {
    const dayjs = require_('dayjs');
    dayjs.extend(require_('dayjs/plugin/utc'));
    assert.equal(dayjs.utc('2030-01-31T00:00:00Z').add(1, 'month').format('YYYY-MM-DD'), '2030-02-28');
    dayjs.extend(require_('dayjs/plugin/preParsePostFormat'));
    dayjs.locale(require_('dayjs/locale/ar'));
    assert.equal(dayjs('٢٠٣٠-٠١-٣١').locale('en').format('YYYY-MM-DD'), '2030-01-31');
  },
  'fast-xml-parser': () => {
    const { XMLParser, XMLBuilder, XMLValidator } = require_('fast-xml-parser');
    assert.deepEqual(new XMLParser({ ignoreAttributes: false }).parse('<a x="1"><b>two</b></a>'), { a: { b: 'two', '@_x': '1' } });
    assert.equal(new XMLBuilder().build({ a: { b: 'two' } }), '<a><b>two</b></a>');
    assert.equal(XMLValidator.validate('<a></a>'), true);
  },
  jose: async () => {
    const jose = require_('jose');
    const { publicKey, privateKey } = await jose.generateKeyPair('ES256');
    const jwt = await new jose.SignJWT({ sum: 5 }).setProtectedHeader({ alg: 'ES256' }).setExpirationTime('1h').sign(privateKey);
    assert.equal((await jose.jwtVerify(jwt, publicKey)).payload.sum, 5);
    const key = new Uint8Array(32);
    const jwe = await new jose.CompactEncrypt(Buffer.from('text')).setProtectedHeader({ alg: 'dir', enc: 'A256GCM' }).encrypt(key);
    assert.equal(Buffer.from((await jose.compactDecrypt(jwe, key)).plaintext).toString(), 'text');
  },
  jsonpath: () => {
    const jp = require_('jsonpath');
    const shop = { books: [{ title: 'A', price: 5 }, { title: 'B', price: 15 }] };
    assert.deepEqual(jp.query(shop, '$..books[?(@.price < 10)].title'), ['A']);
    assert.equal(jp.value(shop, '$.books[(@.length-1)].title'), 'B');
  },
  lodash: () => {
    const _ = require_('lodash');
    assert.equal(_.get({ a: [{ b: 3 }] }, 'a[0].b'), 3);
    assert.equal(require_('lodash/get'), _.get);
    assert.equal(require_('lodash/camelCase.js')('a_b'), 'aB');
    assert.deepEqual(require_('lodash/fp').map((x) => x + 1)([1, 2]), [2, 3]);
  },
  'node-fetch': () => served(async (url) => {
    const fetch = require_('node-fetch');
    const response = await fetch(`${url}/x`, { method: 'POST', body: new URLSearchParams({ a: 'b c' }) });
    assert.equal(response.status, 200);
    const got = await response.json();
    assert.deepEqual([got.method, got.body], ['POST', 'a=b+c']);
    assert.equal(new fetch.Headers({ A: 'b' }).get('a'), 'b');
  }),
  'node-forge': () => {
    const forge = require_('node-forge');
    assert.equal(forge.md.sha1.create().update('abc').digest().toHex(), 'a9993e364706816aba3e25717850c26c9cd0d89d');
    const cipher = forge.cipher.createCipher('3DES-ECB', forge.util.createBuffer('0123456789abcdef01234567'));
    cipher.start();
    cipher.update(forge.util.createBuffer('pin block'));
    assert.equal(cipher.finish(), true);
    assert.equal(cipher.output.length(), 16);
    assert.equal(forge.pem.decode(forge.pem.encode({ type: 'X', body: 'abc' }))[0].body, 'abc');
  },
  uuid: () => {
    const { v4, v5, v7, validate, version } = require_('uuid');
    assert.equal(version(v4()), 4);
    assert.equal(version(v7()), 7);
    assert.equal(validate(v5('x', v5.DNS)), true);
  },
  xmlbuilder2: () => {
    const { create, convert } = require_('xmlbuilder2');
    assert.equal(create({ version: '1.0' }).ele('a', { x: '1' }).txt('<').up().end(), '<?xml version="1.0"?><a x="1">&lt;</a>');
    assert.deepEqual(convert('<a><b>1</b></a>', { format: 'object' }), { a: { b: '1' } });
  },
};

for (const { name } of packages) {
  test(`${name} does its work`, async () => {
    assert.ok(doing[name], `no test of ${name}`);
    await doing[name]();
    assert.equal(require_(name), require_(name), 'a package is made once');
  });
}
