import { ConnectionError, TokenkeepError, isObject } from './errors.js';

export function wrong(words: string): TokenkeepError {
  return new TokenkeepError('invalid', '', words);
}

/** Checks where the server is, and returns it without a slash at the end. */
export function baseOf(text: string, allowHttp: boolean): string {
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
export function isExact(address: string): boolean {
  return !address.includes('#') && new URL(address).href === address;
}

export function queryOf(query: object | undefined, operation: string): string {
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

export function jsonOf(value: unknown, operation: string): string {
  let text: string | undefined;
  try {
    text = JSON.stringify(value);
  } catch {
    // Told below: the error of the engine names members.
  }
  if (text === undefined) throw new TokenkeepError('invalid', operation, 'the request cannot be written as JSON');
  return text;
}

export function isJson(answer: Response): boolean {
  return /^application\/json(\s*;|$)/i.test(answer.headers.get('Content-Type') ?? '');
}

/** Reads JSON, or says undefined. */
export function parsed(text: string | undefined): unknown {
  try {
    return text === undefined ? undefined : JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** Reads an answer to its end, or says undefined when it is longer than most bytes. */
export async function textOf(answer: Response, most: number): Promise<string | undefined> {
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
export function broken(operation: string, error: unknown): ConnectionError {
  for (let e = error, depth = 0; isObject(e) && depth < 4; e = e['cause'], depth++) {
    const code = e['code'];
    if (typeof code === 'string' && /^[A-Z][A-Z0-9_]{1,63}$/.test(code)) return new ConnectionError('unavailable', operation, code);
  }
  return new ConnectionError('unavailable', operation);
}

/** A UUID of version 4. crypto.randomUUID is not there for pages without https. */
export function newUuid(): string {
  const b = crypto.getRandomValues(new Uint8Array(16));
  b[6] = (b[6]! & 0x0f) | 0x40;
  b[8] = (b[8]! & 0x3f) | 0x80;
  const hex = Array.from(b, (n) => n.toString(16).padStart(2, '0')).join('');
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join('-');
}
