import { ApiError, ConnectionError } from './errors.js';
import type { Row } from './operations.js';

const firstWait = 250;
const mostWait = 8_000;
/** The longest Retry-After that a call waits for by itself, in seconds. */
const mostAsked = 60;

/**
 * Says after how many milliseconds a call that failed is tried again, or
 * undefined when it is not. tried is how often it was tried again already.
 */
export function waitFor(row: Row, error: unknown, tried: number): number | undefined {
  if (row.open) return undefined;
  const refusal = error instanceof ApiError ? error : undefined;
  if (!row.reads && !row.keyed && (row.method === 'POST' || row.method === 'PATCH')) {
    // Once more could be once too often, unless the service says that it did
    // nothing. Keyed rows are known again: once more gets the first answer.
    if (refusal?.status !== 429 && refusal?.status !== 503) return undefined;
  }
  if (refusal) {
    const asked = refusal.retryAfter ?? 0;
    // A first try whose connection broke may still be at work.
    const inFlight = row.keyed && refusal.status === 409 && asked > 0;
    if ((!(isPassing(refusal.status) && !row.runs) && !inFlight) || asked > mostAsked) return undefined;
    return Math.max(asked * 1000, backoff(tried));
  }
  if (error instanceof ConnectionError && error.kind === 'unavailable' && !isCertificate(error.code)) return backoff(tried);
  return undefined;
}

/** Whether a status may be another one the next time. */
function isPassing(status: number): boolean {
  return status === 408 || status === 429 || (status >= 500 && status !== 501 && status !== 505);
}

/** Whether the other side is not who it should be, which does not pass. */
function isCertificate(code: string | undefined): boolean {
  return code !== undefined && /CERT|UNABLE_TO_|ERR_TLS/.test(code);
}

/** Doubles with every try, up to a bound. Half of it is chance, so that clients which failed together do not come back together. */
function backoff(tried: number): number {
  const most = Math.min(firstWait * 2 ** tried, mostWait);
  return most / 2 + (Math.random() * most) / 2;
}

/** Reads Retry-After, which is seconds or a date, as seconds. */
export function retryAfter(value: string | null): number | undefined {
  if (!value) return undefined;
  if (/^[0-9]{1,9}$/.test(value)) return Number(value);
  const at = Date.parse(value);
  return Number.isNaN(at) ? undefined : Math.max(0, (at - Date.now()) / 1000);
}

/** Waits, unless the signal comes first: then it throws. */
export function sleep(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const stop = () => {
      clearTimeout(timer);
      reject(signal.reason as Error);
    };
    const timer = setTimeout(() => {
      signal.removeEventListener('abort', stop);
      resolve();
    }, ms);
    if (signal.aborted) stop();
    else signal.addEventListener('abort', stop, { once: true });
  });
}
