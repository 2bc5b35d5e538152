// Must compile: what users write.
import { ApiError, ConnectionError, Tokenkeep, TokenkeepError, verifyCallback } from 'tokenkeep';
import type { CardData, ClientOptions, CreateToken, ErrorKind, Page, Token, operations } from 'tokenkeep';

const options: ClientOptions = { baseUrl: 'https://vault.example', key: 'k', headerPrefix: 'BT', retries: 0, timeout: 1000 };
const vault = new Tokenkeep(options);

export async function use(signal: AbortSignal): Promise<string | undefined> {
  const data: CardData = { number: '4242424242424242', expiration_month: 12, expiration_year: '2030' };
  const request: CreateToken = { type: 'card', data, metadata: { order: '1001' } };
  const token: Token = await vault.tokens.create(request, { idempotencyKey: 'order-1001', signal, timeout: 500 });
  const page: Page<Token> = await vault.tokens.page({ type: ['card'], metadata: { order: '1001' }, page: 2 });
  for await (const each of vault.tokens.list({ id: [token.id] })) console.log(each.card?.last4, page.pagination.total_pages);
  await vault.tokens.update(token.id, { metadata: { order: null }, expires_at: null });
  await vault.applications.create({ name: 'a', type: 'private', rules: [{ container: '/', transform: 'mask', permissions: ['token:read'] }] });
  await vault.proxies.patch('p', { require_auth: true, response_transform: null });
  await vault.proxies.patch('p', { application: null });
  await vault.proxies.patch('p', { application_id: null });
  await vault.proxies.replace('p', await vault.proxies.get('p'));
  await vault.proxies.replace('p', { ...(await vault.proxies.get('p')), application_id: null, application: null });
  await vault.reactors.replace('r', await vault.reactors.get('r'));
  const nothing: void = await vault.tokens.delete(token.id);
  const answer: Response = await vault.proxies.call({ proxyKey: 'p', path: '/x', json: { a: 1 }, headers: { A: 'b' } });
  const session = await vault.sessions.create();
  const browser: Tokenkeep = vault.withKey(session.session_key);
  const anything: unknown = await browser.tokenize({ nothing, answer });
  const callback: unknown = await verifyCallback('{}', { 'webhook-id': 'a' }, 'whsec_');
  try {
    await vault.reactors.react('r', { args: { anything, callback } });
  } catch (e) {
    if (e instanceof ApiError && e.kind === 'invalid') return e.errors['data.number']?.join() ?? e.traceId;
    if (e instanceof ConnectionError) return e.code;
    if (e instanceof TokenkeepError) return e.operation satisfies string;
  }
  return undefined;
}

export const kinds = ['not_found', 'timeout'] satisfies ErrorKind[];
export type Names = keyof operations;
