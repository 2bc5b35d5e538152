// Calls to the vault, which only frames make.
import { own, random, str, type Bag } from './messages';
import type { Frame } from './frame';

const ATTEMPTS = 3, ATTEMPT_MS = 15_000, AUTHORIZE_MS = 60_000;
const SESSION_MS = 160_000; // of the 180 s that a session has from the request for it

/** An error that the page is told about. Its message is ours: words of the browser or of the vault are not passed on. */
export class Failed extends Error {
  constructor(readonly code: string, message: string, readonly more: Bag = {}) { super(message); }
}

export const cancelled = () => new Failed('timeout', 'The request was cancelled.');

const foreign = (more?: Bag) => new Failed('foreign_session', 'Another application made the session.', more);

/** Resolves after ms; rejects when the signal aborts. */
const pause = (ms: number, signal: AbortSignal) => new Promise<void>((resolve, reject) => {
  const stop = () => { clearTimeout(timer); reject(cancelled()); };
  const timer = setTimeout(() => { signal.removeEventListener('abort', stop); resolve(); }, ms);
  signal.addEventListener('abort', stop, { once: true });
});

export interface Call { method: string; path: string; key: string; idempotency?: string; body?: string; signal: AbortSignal }

/** One call: three attempts of 15 s, honouring Retry-After. */
export async function call(frame: Frame, c: Call): Promise<Bag> {
  // The vault refuses a session that another application than that of these fields made.
  const headers: Record<string, string> = { [frame.prefix + '-API-KEY']: c.key, [frame.prefix + '-PUBLIC-KEY']: frame.key };
  if (c.idempotency) headers[frame.prefix + '-IDEMPOTENCY-KEY'] = c.idempotency;
  if (c.body !== undefined) headers['Content-Type'] = 'application/json';
  for (let attempt = 1, wait = 400; ; attempt++, wait *= 2) {
    let answer: Response | null = null, content: unknown = null;
    try {
      answer = await fetch(location.origin + c.path, {
        method: c.method, mode: 'same-origin', credentials: 'omit', cache: 'no-store', redirect: 'error', referrerPolicy: 'no-referrer',
        signal: AbortSignal.any([c.signal, AbortSignal.timeout(ATTEMPT_MS)]), headers, body: c.body,
      });
      content = [200, 201, 400, 403].includes(answer.status) ? await answer.json() : null;
      if (answer.ok) return content as Bag;
    } catch { answer = null; }
    if (c.signal.aborted) throw cancelled();
    const status = answer?.status ?? 0, after = Number(answer?.headers.get('Retry-After') ?? NaN);
    const again = !answer || [408, 429, 500, 502, 503, 504].includes(status) || (status === 409 && after >= 0);
    if (again && attempt < ATTEMPTS) {
      await pause(Math.min(after >= 0 ? after * 1000 : wait, 5000), c.signal);
      continue;
    }
    throw failure(frame, answer, content);
  }
}

function failure(frame: Frame, answer: Response | null, content: unknown): Failed {
  if (!answer) return new Failed('network', 'The vault could not be reached.');
  const status = answer.status, trace = answer.headers.get(frame.prefix + '-TRACE-ID') ?? undefined;
  if (status === 400) {
    const fields = Object.keys((own(content, 'errors') ?? {}) as Bag).map((name) => name.slice(0, 60));
    return new Failed('invalid_card', 'The vault refused the values.', { fields, trace });
  }
  if (str(content, 'code') === 'foreign_session') return foreign({ trace });
  const codes: Record<number, string> = { 401: 'session_over', 403: 'not_allowed', 404: 'not_found', 429: 'too_many' };
  return new Failed(codes[status] ?? 'vault_failed', `The vault responded with status ${status}.`, { status, trace });
}

/** A session, and until when it can be used, as performance.now() counts: the clocks of visitors are wrong. */
export interface Session { key: string; until: number }

/** Makes a session whose key never leaves the frame. The page gets the nonce and has it authorized. */
export async function newSession(frame: Frame, id: string, signal: AbortSignal): Promise<Session> {
  const until = performance.now() + SESSION_MS;
  const made = await call(frame, { method: 'POST', path: '/sessions', key: frame.key, idempotency: random(), signal });
  const authorized = frame.authorization(id);
  frame.say('nonce', { id, nonce: made.nonce });
  const ok = await Promise.race([authorized, pause(AUTHORIZE_MS, signal).then(() => false)]);
  if (!ok) throw new Failed('not_authorized', 'The session was not authorized.');
  return { key: String(made.session_key), until };
}

const tenantOf = (key: string) => /_([1-9A-HJ-NP-Za-km-z]{22})[1-9A-HJ-NP-Za-km-z]{28}$/.exec(key)?.[1] ?? '-';

/** The session for a request that stores a value: the one that the page gives, or a new one. */
export async function sessionFor(frame: Frame, m: unknown, id: string, signal: AbortSignal): Promise<Session> {
  const key = str(m, 'session', 100);
  if (!key) return newSession(frame, id, signal);
  if (tenantOf(key) !== tenantOf(frame.key)) throw foreign();
  return { key, until: Infinity };
}
