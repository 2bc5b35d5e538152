'use strict';

const { headersObject } = require('./headers');
const { jsonText } = require('./json');

const { parse } = JSON;

// asGiven are the members whose insides belong to the tenant: names in there
// stay as they are, in both directions. A mask repeats the names of the data.
const asGiven = new Set(['data', 'metadata', 'mask']);

const snake = (name) => name.replace(/(?<=[a-z0-9])[A-Z]/g, (c) => `_${c}`).toLowerCase();
const camel = (name) => name.replace(/(?<=[A-Za-z0-9])_+([a-z0-9])/g, (_, c) => c.toUpperCase());

// rename renames the members of a resource, deeply.
function rename(value, to) {
  if (Array.isArray(value)) return value.map((v) => rename(v, to));
  if (typeof value !== 'object' || value === null) return value;
  if (typeof value.toJSON === 'function') return rename(value.toJSON(), to);
  return Object.fromEntries(Object.entries(value).map(([name, v]) => [to(name), asGiven.has(name) ? v : rename(v, to)]));
}

const tokenIn = (model) => rename(model, snake);
const tokenOut = (model) => rename(model, camel);
const listOut = ({ pagination, data }) => ({ pagination: tokenOut(pagination), data: data.map(tokenOut) });

// ApiError is what a refused call throws: the status that came back and the body
// with it. The status is -1 when there was no answer.
class ApiError extends Error {
  constructor(message, status, data) {
    super(message);
    this.name = 'BasisTheoryApiError';
    this.status = status;
    this.data = data;
  }
}

// segment makes an id fit for a path. An empty one would name the collection.
function segment(id) {
  if (typeof id !== 'string' || id === '') throw new TypeError('an id must be a text that is not empty');
  return encodeURIComponent(id);
}

// queryText writes a query: lists as repeated names, an object as name.key.
function queryText(query, toName) {
  const params = new URLSearchParams();
  const add = (name, value) => {
    if (['string', 'number', 'boolean'].includes(typeof value)) params.append(name, String(value));
  };
  for (const [name, value] of Object.entries(query || {})) {
    if (Array.isArray(value)) value.forEach((v) => add(toName(name), v));
    else if (typeof value === 'object' && value !== null) Object.keys(value).forEach((key) => add(`${name}.${key}`, value[key]));
    else add(toName(name), value);
  }
  const text = params.toString();
  return text === '' ? '' : `?${text}`;
}

function parsed(text) {
  if (text === undefined || text === null || text === '') return undefined;
  try {
    return parse(text);
  } catch {
    return text;
  }
}

// createClient makes the `bt` of reactor and transform code over
//   request({method, path, headers, body}) → Promise<{status, headers, body}>
// with texts or undefined as bodies. It holds no key: whoever answers request
// knows whose run this is. headerPrefix is the server's.
function createClient(request, { headerPrefix = 'SVC' } = {}) {
  const json = 'application/json';

  // send makes one call and returns the parsed answer with its headers.
  async function send(method, path, headers, body) {
    let answer;
    try {
      answer = await request({ method, path, headers, body });
    } catch (cause) {
      throw new ApiError(cause instanceof Error ? cause.message : 'the call was not answered', -1);
    }
    const data = parsed(answer.body);
    if (answer.status < 200 || answer.status > 299) {
      throw new ApiError(`Request failed with status code ${answer.status}`, answer.status, data);
    }
    return { data, headers: answer.headers };
  }

  // optionHeaders reads the options of a call. An apiKey among them is ignored:
  // the client acts as the application of the reactor or proxy, and no other.
  function optionHeaders({ correlationId, idempotencyKey } = {}) {
    const headers = {};
    if (correlationId) headers[`${headerPrefix}-TRACE-ID`] = String(correlationId);
    if (idempotencyKey) headers[`${headerPrefix}-IDEMPOTENCY-KEY`] = String(idempotencyKey);
    return headers;
  }

  async function call(method, path, body, options, type = json) {
    const headers = optionHeaders(options || {});
    if (body !== undefined) headers['Content-Type'] = type;
    return (await send(method, path, headers, body === undefined ? undefined : jsonText(body))).data;
  }

  const tokens = {
    create: async (token, options) => tokenOut(await call('POST', '/tokens', tokenIn(token), options)),
    retrieve: async (id, options) => tokenOut(await call('GET', `/tokens/${segment(id)}`, undefined, options)),
    update: async (id, patch, options) =>
      tokenOut(await call('PATCH', `/tokens/${segment(id)}`, tokenIn(patch), options, 'application/merge-patch+json')),
    delete: async (id, options) => {
      await call('DELETE', `/tokens/${segment(id)}`, undefined, options);
    },
    list: async (query, options) => listOut(await call('GET', `/tokens${queryText(query, snake)}`, undefined, options)),
    search: async (query, options) => listOut(await call('POST', '/tokens/search', tokenIn(query), options)),
  };

  const reactors = {
    // The names of the arguments are the reactor's own.
    react: async (id, { args, ...others } = {}, options) =>
      call('POST', `/reactors/${segment(id)}/react`, { ...rename(others, snake), args }, options),
  };

  // The headers that steer a proxy, by the names that published code uses, are
  // sent under the server's own prefix. Keys stay behind.
  function proxyHeaders(given) {
    const headers = headersObject();
    for (const [name, value] of Object.entries(given || {})) {
      const steering = /^bt-(proxy-(?:url|key|keep-alive|connection))$/i.exec(name);
      if (name.toLowerCase() === `${headerPrefix}-api-key`.toLowerCase() || value === undefined || value === null) continue;
      headers[steering ? `${headerPrefix}-${steering[1]}` : name] = String(value);
    }
    return headers;
  }

  const proxyQuery = (name) => (name.toLowerCase() === 'bt-proxy-key' ? `${headerPrefix.toLowerCase()}-proxy-key` : name);

  // proxyBody returns the text to send and the type that it has when the code
  // names none. Texts go as they are.
  function proxyBody(body) {
    const form = 'application/x-www-form-urlencoded';
    if (body === undefined || body === null) return [];
    if (typeof body === 'string') return [body, form];
    if (body instanceof URLSearchParams) return [body.toString(), form];
    if (ArrayBuffer.isView(body) || body instanceof ArrayBuffer) throw new TypeError('the body of a proxied call must be text or JSON');
    return [jsonText(body), json];
  }

  async function proxied(method, options) {
    const { path = '', query, headers: given, body: value, includeResponseHeaders } = options || {};
    const [body, type] = proxyBody(value);
    const headers = proxyHeaders({ ...optionHeaders(options || {}), ...given });
    if (body !== undefined && headers['Content-Type'] === undefined) headers['Content-Type'] = type;
    const suffix = path === '' || path.startsWith('/') ? path : `/${path}`;
    const search = queryText(query, proxyQuery);
    const answer = await send(method, `/proxy${suffix}${suffix.includes('?') ? search.replace('?', '&') : search}`, { ...headers }, body);
    return includeResponseHeaders ? { data: answer.data, headers: headersObject(answer.headers) } : answer.data;
  }

  const proxy = {};
  for (const method of ['get', 'post', 'put', 'patch', 'delete']) {
    proxy[method] = (options) => proxied(method.toUpperCase(), options);
  }

  return {
    tokens,
    reactors,
    proxy,
    tokenize: (document, options) => call('POST', '/tokenize', document, options),
    detokenize: (document, options) => call('POST', '/detokenize', document, options),
  };
}

module.exports = { createClient };
