'use strict';

const { stringify } = JSON;

// jsonText is JSON.stringify for a reader that refuses broken Unicode: halves of
// surrogate pairs become the replacement character. It returns undefined for
// what has no JSON (a function, undefined) and throws what toJSON throws.
//
// JSON.stringify writes such a half, and only that, as an escape of the form
// \ud800; a backslash of the text itself comes doubled, and is passed over.
function jsonText(value) {
  const text = stringify(value);
  return text === undefined ? undefined : text.replace(/\\\\|\\ud[89a-f][0-9a-f]{2}/g, (s) => (s === '\\\\' ? s : '\\ufffd'));
}

module.exports = { jsonText };
