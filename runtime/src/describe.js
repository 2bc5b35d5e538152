'use strict';

const { errorLists, isStatus, kinds } = require('./errors');
const { jsonText } = require('./json');

const { parse } = JSON;
const known = new Map(kinds.map(([name, status, detail]) => [name, { status, detail }]));

// What is longer is left out whole, never cut: outside the sandbox the values of
// tokens are taken out of these texts, and half a card number would not be found.
const longestText = 16 << 10;
const longestErrors = 64 << 10;

const tooLong = 'the message is too long to be shown';
const unreadable = 'the error cannot be read';

// attempt keeps what a hostile getter, proxy or toString throws to itself.
function attempt(read) {
  try {
    return read();
  } catch {
    return undefined;
  }
}

// wellFormed returns the text without halves of surrogate pairs.
const wellFormed = (text) => parse(jsonText(text));

function shortText(value) {
  const text = attempt(() => wellFormed(String(value)));
  if (typeof text !== 'string') return unreadable;
  return text.length > longestText ? tooLong : text;
}

// plain copies a value by way of JSON, so that no getter is left in it.
function plain(value) {
  const text = jsonText(value);
  return text === undefined ? undefined : parse(text);
}

function shortErrors(value) {
  return attempt(() => {
    const lists = errorLists(value);
    const text = lists && jsonText(lists);
    if (!text) return undefined;
    return text.length > longestErrors ? { error: [tooLong] } : parse(text);
  });
}

// headerTexts turns headers into texts by name; what is no text, number or list
// of these is left out.
function headerTexts(headers) {
  const out = {};
  for (const [name, value] of Object.entries(plain(headers) || {})) {
    const list = Array.isArray(value) ? value : [value];
    if (list.every((v) => ['string', 'number', 'boolean'].includes(typeof v))) {
      Object.defineProperty(out, name, { value: list.join(', '), enumerable: true });
    }
  }
  return out;
}

// describeError says in plain JSON what was thrown, whatever it was: nothing that
// a tenant throws makes it throw. Of what is returned,
//   name, message  are always there;
//   status         is there for the errors of the errors module, known by their
//                  name and status, whoever made them;
//   errors         lists of texts by name, for these, if there are any;
//   custom         {status, headers, body} of a CustomHttpResponseError.
// The stack is never read.
function describeError(thrown) {
  // Code may also have replaced what describing needs, such as Map.prototype.get.
  return attempt(() => describe(thrown)) || { name: 'Error', message: unreadable };
}

function describe(thrown) {
  if ((typeof thrown !== 'object' || thrown === null) && typeof thrown !== 'function') {
    return { name: 'Error', message: shortText(thrown) };
  }
  const get = (name) => attempt(() => thrown[name]);
  const name = get('name');
  const status = get('status');
  if (name === 'CustomHttpResponseError' && isStatus(status)) return describeCustom(name, status, get);
  const kind = known.get(name);
  if (kind && kind.status === status) return describeKnown(name, kind, get);
  const message = get('message');
  return {
    name: typeof name === 'string' && name !== '' && name.length <= 128 ? wellFormed(name) : 'Error',
    message: shortText(message === undefined || message === '' ? thrown : message),
  };
}

function describeKnown(name, { status, detail }, get) {
  const described = { name, status, message: detail };
  const message = get('message');
  const given = get('errors');
  const errors = shortErrors(given !== undefined || message === detail || message === '' ? given : message);
  if (errors) described.errors = errors;
  return described;
}

function describeCustom(name, status, get) {
  try {
    const custom = { status, headers: headerTexts(get('headers')) };
    const body = plain(get('body'));
    if (body !== undefined) custom.body = body;
    return { name, status, message: 'Custom HTTP Response', custom };
  } catch {
    return { name, message: 'the headers or the body of a CustomHttpResponseError are not JSON' };
  }
}

module.exports = { describeError };
