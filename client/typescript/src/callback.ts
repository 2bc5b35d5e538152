import { TokenkeepError } from './errors.js';

/** How many seconds the clocks of sender and receiver may differ. */
const tolerance = 300;

/** The headers of a request, as fetch, Node.js and frameworks on it give them. */
export type CallbackHeaders = Headers | Record<string, string | string[] | undefined>;

/**
 * Checks that a callback comes from your server, after Standard Webhooks, and
 * returns what it brings. It throws when the callback is not genuine, and when
 * it is older than five minutes.
 *
 * @param body as it arrived: parsing and writing it again changes it
 * @param secret what `tenant.callbackSecret` returns as `secret`
 */
export async function verifyCallback(body: string | Uint8Array, headers: CallbackHeaders, secret: string): Promise<unknown> {
  const id = header(headers, 'webhook-id');
  const timestamp = header(headers, 'webhook-timestamp');
  const signatures = header(headers, 'webhook-signature');
  if (!id || !/^[0-9]{1,12}$/.test(timestamp) || !signatures) throw notGenuine('it is not signed');
  if (Math.abs(Date.now() / 1000 - Number(timestamp)) > tolerance) throw notGenuine('it is too old, or a clock is wrong');

  const text = typeof body === 'string' ? new TextEncoder().encode(body) : body;
  const before = new TextEncoder().encode(`${id}.${timestamp}.`);
  const signed = new Uint8Array(before.length + text.length);
  signed.set(before);
  signed.set(text, before.length);

  const raw = decode(secret.replace(/^whsec_/, ''));
  if (!raw || raw.length === 0) throw new TokenkeepError('invalid', '', 'the secret of callbacks is not one');
  const key = await crypto.subtle.importKey('raw', raw, { name: 'HMAC', hash: 'SHA-256' }, false, ['verify']);
  for (const one of signatures.split(' ')) {
    const signature = one.startsWith('v1,') ? decode(one.slice(3)) : undefined;
    // verify compares in constant time.
    if (signature && (await crypto.subtle.verify('HMAC', key, signature, signed))) return parse(text);
  }
  throw notGenuine('no signature fits');
}

/** Reads JSON. The error of the engine quotes what it cannot read. */
function parse(text: Uint8Array): unknown {
  try {
    return JSON.parse(new TextDecoder().decode(text));
  } catch {
    throw new TokenkeepError('invalid', '', 'the callback is genuine, and not JSON');
  }
}

function notGenuine(why: string): TokenkeepError {
  return new TokenkeepError('unauthenticated', '', 'the callback is not genuine: ' + why);
}

function header(headers: CallbackHeaders, name: string): string {
  if (headers instanceof Headers) return headers.get(name) ?? '';
  for (const [key, value] of Object.entries(headers)) {
    if (key.toLowerCase() === name) return Array.isArray(value) ? value.join(' ') : (value ?? '');
  }
  return '';
}

function decode(base64: string): Uint8Array<ArrayBuffer> | undefined {
  try {
    return Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
  } catch {
    return undefined;
  }
}
