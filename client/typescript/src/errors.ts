/**
 * What went wrong, to tell errors apart:
 *
 * - `invalid`: 400, 413, 415, or refused before it was sent
 * - `unauthenticated` 401, `forbidden` 403, `not_found` 404, `conflict` 409, `too_many` 429
 * - `unavailable`: 502, 503, 504, or no whole answer
 * - `timeout`: the time that the call had is over
 * - `other`: any other status, or an answer that is not understood
 */
export type ErrorKind =
  | 'invalid'
  | 'unauthenticated'
  | 'forbidden'
  | 'not_found'
  | 'conflict'
  | 'too_many'
  | 'unavailable'
  | 'timeout'
  | 'other';

/**
 * Any failure of a call. No error holds a key or what was sent, and none has a
 * cause that could: the errors of engines quote headers and addresses.
 */
export class TokenkeepError extends Error {
  readonly kind: ErrorKind;
  /** What was called, such as `GET /tokens/{id}`, with no id in it; empty when it is the client's settings that are wrong. */
  readonly operation: string;

  /** @internal */
  constructor(kind: ErrorKind, operation: string, words: string) {
    super('tokenkeep: ' + (operation ? operation + ': ' : '') + words);
    this.name = new.target.name;
    this.kind = kind;
    this.operation = operation;
  }
}

/** There was no whole answer. */
export class ConnectionError extends TokenkeepError {
  declare readonly kind: 'unavailable' | 'timeout';
  /** The engine's own code for it, such as `ECONNREFUSED`, where it has one. */
  readonly code: string | undefined;

  /** @internal */
  constructor(kind: 'unavailable' | 'timeout', operation: string, code?: string) {
    super(kind, operation, kind === 'timeout' ? 'there was no answer in time' : 'the connection failed' + (code ? ` (${code})` : ''));
    this.code = code;
  }
}

/** What the server said of a call that it refused. */
export interface Refusal {
  status: number;
  title: string;
  detail: string;
  code: string | undefined;
  errors: Record<string, string[]>;
  traceId: string | undefined;
  retryAfter: number | undefined;
}

const kinds: Record<number, ErrorKind> = {
  400: 'invalid',
  401: 'unauthenticated',
  403: 'forbidden',
  404: 'not_found',
  409: 'conflict',
  413: 'invalid',
  415: 'invalid',
  429: 'too_many',
  502: 'unavailable',
  503: 'unavailable',
  504: 'unavailable',
};

/** An answer that says no. */
export class ApiError extends TokenkeepError implements Refusal {
  readonly status: number;
  readonly title: string;
  /** What went wrong, in a sentence. */
  readonly detail: string;
  /** A stable word for programs, such as `idempotency_key_reused`, on the errors that have one. */
  readonly code: string | undefined;
  /** Messages by the dotted path of the member at fault, such as `data.number`. */
  readonly errors: Record<string, string[]>;
  /** How the server's operator finds the call. */
  readonly traceId: string | undefined;
  /** How many seconds the server asked to wait. */
  readonly retryAfter: number | undefined;

  /** @internal */
  constructor(operation: string, said: Refusal) {
    let words = `${said.status} ${printable(said.title)}`;
    if (said.detail) words += ': ' + printable(said.detail);
    for (const path of Object.keys(said.errors).sort()) words += `; ${printable(path)}: ${printable(said.errors[path]!.join(', '))}`;
    if (said.traceId) words += ` (trace id ${printable(said.traceId)})`;
    super(kinds[said.status] ?? 'other', operation, words);
    this.status = said.status;
    this.title = said.title;
    this.detail = said.detail;
    this.code = said.code;
    this.errors = said.errors;
    this.traceId = said.traceId;
    this.retryAfter = said.retryAfter;
  }
}

/** Makes a text of somebody else's fit for one line of a log. */
function printable(text: string): string {
  const longest = 300;
  const characters = [...text];
  const cut = characters.length > longest ? characters.slice(0, longest).join('') + '…' : text;
  return cut.replace(/[\p{C}\p{Zl}\p{Zp}]/gu, '?');
}

/** Reads the error of a body, or says that it is none of ours. */
export function problemIn(value: unknown, status: number): Pick<Refusal, 'title' | 'detail' | 'code' | 'errors'> | undefined {
  if (!isObject(value) || value['status'] !== status || typeof value['title'] !== 'string') return undefined;
  const detail = value['detail'];
  const errors: Record<string, string[]> = {};
  if (isObject(value['errors'])) {
    for (const [path, messages] of Object.entries(value['errors'])) {
      if (Array.isArray(messages)) errors[path] = messages.filter((m) => typeof m === 'string');
    }
  }
  const code = typeof value['code'] === 'string' ? value['code'] : undefined;
  return { title: value['title'], code, detail: typeof detail === 'string' ? detail : '', errors };
}

export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
