'use strict';

const { jsonText } = require('./json');

// The errors that reactor and transform code throws to answer with a status of
// its choice. Each row becomes a class; its one argument says what was wrong.
const kinds = [
  ['BadRequestError', 400, 'Bad Request'],
  ['InvalidReactorConfigurationError', 400, 'Invalid Reactor Configuration'],
  ['AuthenticationError', 401, 'Authentication Failed'],
  ['InvalidPaymentMethodError', 402, 'Invalid Payment Method'],
  ['AuthorizationError', 403, 'Forbidden'],
  ['RateLimitError', 429, 'Rate Limit Exceeded'],
  ['ReactorRuntimeError', 500, 'Reactor Runtime Error'],
  ['ServiceUnavailableError', 503, 'Service Unavailable'],
];

// line is one entry of a list of errors, as text. Objects are JSON where they can
// be: the answers of HTTP clients, which people put here, are circular.
function line(value) {
  if (value instanceof Error) return String(value.message);
  if (typeof value !== 'object' || value === null) return String(value);
  try {
    return jsonText(value) || String(value);
  } catch {
    return String(value);
  }
}

const lines = (value) => (Array.isArray(value) ? value.map(line) : [line(value)]);

// errorLists turns the argument of an error into lists of texts by name:
// an object keeps its names, everything else goes under "error". Nothing in,
// nothing out.
function errorLists(value) {
  if (value === undefined || value === null) return undefined;
  if (typeof value !== 'object' || Array.isArray(value) || value instanceof Error) return { error: lines(value) };
  return Object.fromEntries(Object.keys(value).map((name) => [name, lines(value[name])]));
}

class ReactorError extends Error {
  constructor(name, status, detail, argument) {
    super(detail);
    this.name = name;
    this.status = status;
    this.errors = errorLists(argument);
  }
}

// CustomHttpResponseError answers with exactly this status, these headers and
// this body.
class CustomHttpResponseError extends Error {
  constructor({ status, headers, body } = {}) {
    super('Custom HTTP Response');
    if (!isStatus(status)) throw new RangeError('the status of a CustomHttpResponseError must be an integer from 200 to 599');
    this.name = 'CustomHttpResponseError';
    this.status = status;
    this.headers = headers === undefined || headers === null ? {} : headers;
    this.body = body === undefined || body === null ? {} : body;
  }
}

const isStatus = (status) => Number.isInteger(status) && status >= 200 && status <= 599;

const classes = { CustomHttpResponseError };
for (const [name, status, detail] of kinds) {
  classes[name] = { [name]: class extends ReactorError {
    constructor(argument) {
      super(name, status, detail, argument);
    }
  } }[name];
}

module.exports = { classes, errorLists, isStatus, kinds };
