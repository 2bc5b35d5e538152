import { ApiError, TokenkeepError, isObject, problemIn } from './errors.js';
import { rows } from './operations.js';
import type { Answer, Input, OperationId, Query, Row } from './operations.js';
import { retryAfter, sleep, waitFor } from './retry.js';
import { Watch, checkTimeout, isBetween } from './watch.js';
import { baseOf, broken, isExact, isJson, jsonOf, newUuid, parsed, queryOf, textOf, wrong } from './wire.js';

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

/** What may be said for a read or a search of tokens. */
export interface ReadOptions extends CallOptions {
  /** Asks for less than the rules allow. It never shows more. Lists take it in their filter. */
  transform?: 'redact' | 'mask' | 'reveal';
}

/** What may be said for a call that changes something. */
export interface ChangeOptions extends CallOptions {
  /**
   * Under which the server knows the call again. Each call has a fresh one,
   * which covers its own retries; to try again later, or after a restart, set
   * one and keep it. 1 to 200 visible ASCII characters. With the key of a
   * public application, which all visitors of a page share, it must be random
   * and of 22 characters or more, such as a UUID.
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
    const headers = new Headers({ Accept: row.answer === 'text' ? (row.media ?? 'text/plain') : 'application/json' });
    this.#sign(headers, options, operation, row.open !== true);
    let body: string | undefined;
    if ('body' in request) {
      // Lines are text already.
      body = row.media === 'application/x-ndjson' && typeof request.body === 'string' ? request.body : jsonOf(request.body, operation);
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

  /** Sends a request without a body once, and returns its answer as it arrives. Only the beginning has a timeout. */
  async stream(id: OperationId, ids: string[], options: CallOptions = {}): Promise<ReadableStream<Uint8Array>> {
    const row: Row = rows[id];
    const operation = `${row.method} ${row.path}`;
    const address = this.#address(row.path, ids, undefined, operation);
    const headers = new Headers();
    this.#sign(headers, options, operation, true);
    const watch = new Watch(options.signal, options.timeout ?? this.#timeout, operation);
    try {
      const answer = await this.#send(operation, address, { method: row.method, headers, signal: watch.signal });
      if (!answer.ok || answer.body === null) {
        const text = await this.#read(operation, answer);
        const problem = text === undefined || this.#holdsKey(text) ? undefined : problemIn(parsed(text), answer.status);
        throw this.#refused(operation, answer, problem ?? { title: 'the answer is not in the form of the server', code: undefined, detail: '', errors: {} });
      }
      watch.endTimer();
      return answer.body;
    } catch (error) {
      try {
        watch.check();
      } finally {
        watch.end();
      }
      throw error;
    }
  }

  /** Sends a request once, and returns its answer to be read as it comes. It has no timeout of its own. */
  async open<K extends OperationId>(id: K, request: Pick<Request<K>, 'query'>, accept: string, extra: Record<string, string>, options: CallOptions = {}): Promise<Response> {
    const row: Row = rows[id];
    const operation = `${row.method} ${row.path}`;
    const headers = new Headers({ ...extra, Accept: accept });
    this.#sign(headers, options, operation, true);
    const answer = await this.#send(operation, this.#address(row.path, [], request.query, operation), { method: row.method, headers, signal: options.signal ?? null });
    if (answer.ok) return answer;
    const text = await this.#read(operation, answer);
    const problem = text === undefined || this.#holdsKey(text) ? undefined : problemIn(parsed(text), answer.status);
    throw this.#refused(operation, answer, problem ?? { title: 'the answer is not in the form of the server', code: undefined, detail: '', errors: {} });
  }

  /** Sends a request once, and reads its answer. */
  async #try(row: Row, operation: string, address: string, init: RequestInit): Promise<unknown> {
    const answer = await this.#send(operation, address, init);
    const text = await this.#read(operation, answer);
    if (!answer.ok) {
      // An answer that repeats the key is none of our server's, and is not shown.
      const problem = text === undefined || this.#holdsKey(text) ? undefined : problemIn(parsed(text), answer.status);
      const redirect = answer.status < 400 ? 'redirects are not followed' : '';
      throw this.#refused(operation, answer, problem ?? { title: 'the answer is not in the form of the server', code: undefined, detail: redirect, errors: {} });
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

  #refused(operation: string, answer: Response, said: Pick<ApiError, 'title' | 'detail' | 'code' | 'errors'>): ApiError {
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
