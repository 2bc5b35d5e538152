import { ApiError, ConnectionError, TokenkeepError, isObject, problemIn } from './errors.js';
import { rows } from './operations.js';
import type { Answer, Input, OperationId, Query, Row } from './operations.js';
import { retryAfter, sleep, waitFor } from './retry.js';

/** The settings of a client. */
export interface ClientOptions {
  /** Where the server is, such as `https://vault.example`, with a path where it stands behind one. */
  baseUrl: string;
  /** The key of an application or of a session. Health checks and open proxies need none. */
  key?: string | undefined;
  /** The prefix of the server's own headers. Default `SVC`. */
  headerPrefix?: string;
  /** How often a call that failed is tried again, 0 to 20, where that does no harm. Default 3. */
  retries?: number;
  /** How many milliseconds a call may take, with its retries. Default two minutes. */
  timeout?: number;
  /** How many bytes of an answer are read. A longer one is an error. Default 32 MiB. */
  maxResponse?: number;
  /** Allows `http:` to other machines than this one. The key then travels in clear. */
  allowHttp?: boolean;
  /** What to call with instead of the global fetch. */
  fetch?: (input: string, init: RequestInit) => Promise<Response>;
}

/** What may be said for one call. */
export interface CallOptions {
  /** Ends the call, which then rejects with the reason of the signal. */
  signal?: AbortSignal;
  /** How many milliseconds the call may take, with its retries. */
  timeout?: number;
  /** Under which the call is found in the server's log: up to 128 letters, digits, `.`, `_` and `-`. */
  traceId?: string;
}

/** What may be said for a call that changes something. */
export interface ChangeOptions extends CallOptions {
  /**
   * Under which the server knows the call again. Each call has a fresh one,
   * which covers its own retries; to try again later, or after a restart, set
   * one and keep it. 1 to 200 visible ASCII characters.
   */
  idempotencyKey?: string;
}

/** A request that a proxy forwards. */
export interface ForwardRequest extends CallOptions {
  /** The key of the proxy. */
  proxyKey?: string;
  /** A destination for this call alone, instead of a proxy. It takes a private key. */
  destination?: string;
  /** Default: POST with a body, GET without. */
  method?: string;
  /** What follows `/proxy`, as it is to be sent, with its query: `/charges?dry=1`. */
  path?: string;
  /** For the destination, its credentials included. */
  headers?: RequestInit['headers'];
  /** Sent as it is; nothing looks for expressions in it unless the headers give it a type. */
  body?: RequestInit['body'];
  /** Sent as JSON, instead of a body. */
  json?: unknown;
}

interface Request<K extends OperationId> {
  /** For the {names} of the path. */
  ids?: string[];
  query?: Query<K>;
  body?: Input<K>;
}

const visible = /^[\x21-\x7e]+$/;

/** Makes calls. All that is secret is private, so that nothing prints it. */
export class Caller {
  readonly #base: string;
  readonly #key: string | undefined;
  readonly #prefix: string;
  readonly #retries: number;
  readonly #timeout: number;
  readonly #maxResponse: number;
  readonly #fetch: NonNullable<ClientOptions['fetch']>;

  constructor(options: ClientOptions) {
    this.#base = baseOf(options.baseUrl, options.allowHttp === true);
    this.#key = options.key;
    this.#prefix = options.headerPrefix ?? 'SVC';
    this.#retries = options.retries ?? 3;
    this.#timeout = options.timeout ?? 120_000;
    this.#maxResponse = options.maxResponse ?? 32 << 20;
    // Browsers want the global fetch to be called on nothing.
    this.#fetch = options.fetch ?? ((input, init) => fetch(input, init));
    if (this.#key !== undefined && (typeof this.#key !== 'string' || !visible.test(this.#key))) throw wrong('the key must be of visible ASCII characters, without spaces');
    if (!/^[A-Za-z0-9-]+$/.test(this.#prefix)) throw wrong('the header prefix must be of letters, digits and dashes');
    if (!isBetween(this.#retries, 0, 20)) throw wrong('the number of retries must be from 0 to 20');
    if (!isBetween(this.#maxResponse, 1, Number.MAX_SAFE_INTEGER)) throw wrong('the bound on answers must be positive');
    checkTimeout(this.#timeout, '');
  }

  /** Calls an operation until it is answered, or trying again is no use. */
  async call<K extends OperationId>(id: K, request: Request<K>, options: ChangeOptions = {}): Promise<Answer<K>> {
    const row: Row = rows[id];
    const operation = `${row.method} ${row.path}`;
    const address = this.#address(row.path, request.ids ?? [], request.query, operation);
    const headers = new Headers({ Accept: row.answer === 'text' ? 'text/plain' : 'application/json' });
    this.#sign(headers, options, operation, row.open !== true);
    let body: string | undefined;
    if ('body' in request) {
      body = jsonOf(request.body, operation);
      headers.set('Content-Type', row.media ?? 'application/json');
    }
    if (row.keyed) {
      const key = options.idempotencyKey ?? newUuid();
      if (!visible.test(key) || key.length > 200) throw new TokenkeepError('invalid', operation, 'the idempotency key must be of 1 to 200 visible ASCII characters');
      headers.set(this.#header('IDEMPOTENCY-KEY'), key);
    }
    const watch = new Watch(options.signal, options.timeout ?? this.#timeout, operation);
    try {
      for (let tried = 0; ; tried++) {
        try {
          return (await this.#try(row, operation, address, { method: row.method, headers, body: body ?? null, signal: watch.signal })) as Answer<K>;
        } catch (error) {
          watch.check();
          const wait = tried < this.#retries ? waitFor(row, error, tried) : undefined;
          if (wait === undefined) throw error;
          await sleep(wait, watch.signal).catch(() => watch.check());
        }
      }
    } finally {
      watch.end();
    }
  }

  /**
   * Sends a request through a proxy, once: nobody here knows what the
   * destination did with it. Returns the destination's answer, whatever its
   * status is, and throws for an answer of the proxy itself.
   */
  async forward(request: ForwardRequest): Promise<Response> {
    const operation = 'POST /proxy/{rest}';
    const path = request.path ?? '';
    const address = `${this.#base}/proxy${path}`;
    if ((path !== '' && !/^[/?]/.test(path)) || !isExact(address)) {
      throw new TokenkeepError('invalid', operation, 'the path begins with a slash, is percent-encoded, and has no dots for segments and no fragment');
    }
    let headers: Headers;
    try {
      headers = new Headers(request.headers);
      if (request.proxyKey !== undefined) headers.set(this.#header('PROXY-KEY'), request.proxyKey);
      if (request.destination !== undefined) headers.set(this.#header('PROXY-URL'), request.destination);
    } catch {
      // The error of the engine quotes the header.
      throw new TokenkeepError('invalid', operation, 'a header cannot be sent as it is');
    }
    this.#sign(headers, request, operation, true);
    let body = request.body;
    if (request.json !== undefined) {
      body = jsonOf(request.json, operation);
      if (!headers.has('Content-Type')) headers.set('Content-Type', 'application/json');
    }
    const method = (request.method ?? (body == null ? 'GET' : 'POST')).toUpperCase();
    if (!/^[A-Z]+$/.test(method) || (/^(GET|HEAD)$/.test(method) && body != null)) {
      throw new TokenkeepError('invalid', operation, 'the method is of letters, and GET and HEAD have no body');
    }
    const watch = new Watch(request.signal, request.timeout ?? this.#timeout, operation);
    try {
      const stream = body instanceof ReadableStream ? { duplex: 'half' } : {};
      const answer = await this.#send(operation, address, { method, headers, body: body ?? null, signal: watch.signal, ...stream });
      if (!answer.headers.has(this.#header('PROXY-DESTINATION-STATUS')) && answer.status >= 400) {
        const text = isJson(answer) ? await this.#read(operation, answer.clone()) : undefined;
        const said = text === undefined || this.#holdsKey(text) ? undefined : parsed(text);
        const problem = isObject(said) ? problemIn(said['proxy_error'], answer.status) : undefined;
        if (problem) throw this.#refused(operation, answer, problem);
      }
      watch.endTimer();
      return answer;
    } catch (error) {
      try {
        watch.check();
      } finally {
        watch.end();
      }
      throw error;
    }
  }

  /** Sends a request once, and reads its answer. */
  async #try(row: Row, operation: string, address: string, init: RequestInit): Promise<unknown> {
    const answer = await this.#send(operation, address, init);
    const text = await this.#read(operation, answer);
    if (!answer.ok) {
      // An answer that repeats the key is none of our server's, and is not shown.
      const problem = text === undefined || this.#holdsKey(text) ? undefined : problemIn(parsed(text), answer.status);
      const redirect = answer.status < 400 ? 'redirects are not followed' : '';
      throw this.#refused(operation, answer, problem ?? { title: 'the answer is not in the form of the server', detail: redirect, errors: {} });
    }
    if (text === undefined) throw new TokenkeepError('other', operation, 'the answer is larger than this client takes');
    if (row.answer === 'none') return undefined;
    if (row.answer === 'text') return text;
    const value = isJson(answer) ? parsed(text) : undefined;
    if (value === undefined) throw new TokenkeepError('other', operation, 'the answer is not understood');
    return value;
  }

  async #send(operation: string, address: string, init: RequestInit): Promise<Response> {
    try {
      // A redirect would hand the key to another server.
      return await this.#fetch(address, { ...init, redirect: 'manual', credentials: 'omit', cache: 'no-store', referrerPolicy: 'no-referrer' });
    } catch (error) {
      throw broken(operation, error);
    }
  }

  async #read(operation: string, answer: Response): Promise<string | undefined> {
    try {
      return await textOf(answer, this.#maxResponse);
    } catch (error) {
      throw broken(operation, error);
    }
  }

  #refused(operation: string, answer: Response, said: Pick<ApiError, 'title' | 'detail' | 'errors'>): ApiError {
    const trace = answer.headers.get(this.#header('TRACE-ID')) ?? undefined;
    return new ApiError(operation, {
      ...said,
      status: answer.status,
      traceId: trace !== undefined && trace.length <= 128 && !this.#holdsKey(trace) ? trace : undefined,
      retryAfter: retryAfter(answer.headers.get('Retry-After')),
    });
  }

  /** Puts the key and the trace id into the headers. */
  #sign(headers: Headers, options: CallOptions, operation: string, withKey: boolean): void {
    if (withKey && this.#key !== undefined) headers.set(this.#header('API-KEY'), this.#key);
    if (options.traceId === undefined) return;
    if (!/^[A-Za-z0-9._-]{1,128}$/.test(options.traceId)) throw new TokenkeepError('invalid', operation, 'the trace id must be of 1 to 128 letters, digits, ".", "_" and "-"');
    headers.set(this.#header('TRACE-ID'), options.traceId);
  }

  /**
   * Fills the ids into the path. An empty id, or one that is taken for a step
   * in the path on the way, would turn the call into another one.
   */
  #address(path: string, ids: string[], query: object | undefined, operation: string): string {
    let next = 0;
    const filled = path.replace(/\{\w+\}/g, () => {
      const id = ids[next++];
      if (typeof id !== 'string' || id === '' || id === '.' || id === '..' || /\p{Cs}/u.test(id)) {
        throw new TokenkeepError('invalid', operation, 'an id is required, and it cannot be a dot or two');
      }
      return encodeURIComponent(id);
    });
    return this.#base + filled + queryOf(query, operation);
  }

  #header(name: string): string {
    return `${this.#prefix}-${name}`;
  }

  #holdsKey(text: string): boolean {
    return this.#key !== undefined && text.includes(this.#key);
  }
}

/** Ends a call when its time is over or its caller says so. */
class Watch {
  readonly signal: AbortSignal;
  readonly #operation: string;
  readonly #asked: AbortSignal | undefined;
  readonly #timer: ReturnType<typeof setTimeout>;
  readonly #forward: () => void;

  constructor(asked: AbortSignal | undefined, ms: number, operation: string) {
    checkTimeout(ms, operation);
    asked?.throwIfAborted();
    const controller = new AbortController();
    this.signal = controller.signal;
    this.#operation = operation;
    this.#asked = asked;
    this.#forward = () => controller.abort(asked?.reason);
    this.#timer = setTimeout(() => controller.abort(), ms);
    asked?.addEventListener('abort', this.#forward, { once: true });
  }

  /** Throws when the call is to end. */
  check(): void {
    this.#asked?.throwIfAborted();
    if (this.signal.aborted) throw new ConnectionError('timeout', this.#operation);
  }

  /** Leaves the rest of the answer to its reader, who still has the signal. */
  endTimer(): void {
    clearTimeout(this.#timer);
  }

  end(): void {
    this.endTimer();
    this.#asked?.removeEventListener('abort', this.#forward);
  }
}

function wrong(words: string): TokenkeepError {
  return new TokenkeepError('invalid', '', words);
}

function isBetween(n: number, least: number, most: number): boolean {
  return Number.isInteger(n) && n >= least && n <= most;
}

function checkTimeout(ms: number, operation: string): void {
  if (!isBetween(ms, 1, 2 ** 31 - 1)) throw new TokenkeepError('invalid', operation, 'the timeout must be a number of milliseconds, from 1');
}

/** Checks where the server is, and returns it without a slash at the end. */
function baseOf(text: string, allowHttp: boolean): string {
  let url: URL | undefined;
  try {
    url = new URL(text);
  } catch {
    // Told below: the error of the engine quotes the address.
  }
  if (!url || !/^https?:$/.test(url.protocol) || url.username || url.password || url.search || url.hash) {
    throw wrong('the base URL must be http or https, with a host, and without a user, query or fragment');
  }
  if (url.protocol === 'http:' && !allowHttp && !/^(localhost|.*\.localhost|127(\.\d+){3}|\[::1\])$/.test(url.hostname)) {
    throw wrong('the base URL must be https: over http everybody on the way reads the key. allowHttp lets it be');
  }
  return url.origin + url.pathname.replace(/\/+$/, '');
}

/** Whether an address is sent as it is: engines take steps in the path, and encode what is not. */
function isExact(address: string): boolean {
  return !address.includes('#') && new URL(address).href === address;
}

function queryOf(query: object | undefined, operation: string): string {
  const all = new URLSearchParams();
  for (const [name, value] of Object.entries(query ?? {}) as [string, unknown][]) {
    if (Array.isArray(value)) {
      // The server would take it for no filter at all.
      if (value.length === 0) throw new TokenkeepError('invalid', operation, 'a filter is an empty list: leave it out to get everything');
      for (const item of value) all.append(name, String(item));
    } else if (isObject(value)) {
      for (const [key, item] of Object.entries(value)) all.append(`${name}.${key}`, String(item));
    } else if (value !== undefined && value !== null) {
      all.append(name, String(value));
    }
  }
  const text = all.toString();
  return text && '?' + text;
}

function jsonOf(value: unknown, operation: string): string {
  let text: string | undefined;
  try {
    text = JSON.stringify(value);
  } catch {
    // Told below: the error of the engine names members.
  }
  if (text === undefined) throw new TokenkeepError('invalid', operation, 'the request cannot be written as JSON');
  return text;
}

function isJson(answer: Response): boolean {
  return /^application\/json(\s*;|$)/i.test(answer.headers.get('Content-Type') ?? '');
}

/** Reads JSON, or says undefined. */
function parsed(text: string | undefined): unknown {
  try {
    return text === undefined ? undefined : JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** Reads an answer to its end, or says undefined when it is longer than most bytes. */
async function textOf(answer: Response, most: number): Promise<string | undefined> {
  if (!answer.body) return answer.text();
  const reader = answer.body.getReader();
  const decoder = new TextDecoder();
  let text = '';
  for (let size = 0; ; ) {
    const { done, value } = await reader.read();
    if (done) return text + decoder.decode();
    size += value.length;
    if (size > most) {
      // Not awaited: of an answer in two copies it ends with the other copy.
      reader.cancel().catch(() => undefined);
      return undefined;
    }
    text += decoder.decode(value, { stream: true });
  }
}

/** Says that there was no whole answer. Of the engine's error its code alone is kept. */
function broken(operation: string, error: unknown): ConnectionError {
  for (let e = error, depth = 0; isObject(e) && depth < 4; e = e['cause'], depth++) {
    const code = e['code'];
    if (typeof code === 'string' && /^[A-Z][A-Z0-9_]{1,63}$/.test(code)) return new ConnectionError('unavailable', operation, code);
  }
  return new ConnectionError('unavailable', operation);
}

/** A UUID of version 4. crypto.randomUUID is not there for pages without https. */
function newUuid(): string {
  const b = crypto.getRandomValues(new Uint8Array(16));
  b[6] = (b[6]! & 0x0f) | 0x40;
  b[8] = (b[8]! & 0x3f) | 0x80;
  const hex = Array.from(b, (n) => n.toString(16).padStart(2, '0')).join('');
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join('-');
}
