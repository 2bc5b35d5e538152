import { ConnectionError, TokenkeepError } from './errors.js';

/** Ends a call when its time is over or its caller says so. */
export class Watch {
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

export function checkTimeout(ms: number, operation: string): void {
  if (!isBetween(ms, 1, 2 ** 31 - 1)) throw new TokenkeepError('invalid', operation, 'the timeout must be a number of milliseconds, from 1');
}

export function isBetween(n: number, least: number, most: number): boolean {
  return Number.isInteger(n) && n >= least && n <= most;
}
