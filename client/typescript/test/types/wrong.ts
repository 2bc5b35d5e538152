// Must not compile, line by line: a line without an error is one itself.
import { Tokenkeep } from 'tokenkeep';
import type { ApiError } from 'tokenkeep';

// @ts-expect-error: no address
new Tokenkeep({ key: 'k' });
const vault = new Tokenkeep({ baseUrl: 'https://vault.example' });
// @ts-expect-error: the key is not to be had
vault.key;
// @ts-expect-error: no such type of token
vault.tokens.create({ type: 'cards', data: 1 });
// @ts-expect-error: no data
vault.tokens.create({ type: 'card' });
// @ts-expect-error: no such setting
vault.tokens.create({ type: 'token', data: 1 }, { idempotency_key: 'a' });
// @ts-expect-error: reads take no idempotency key
vault.tokens.get('a', { idempotencyKey: 'a' });
// @ts-expect-error: no such filter
vault.tokens.list({ kind: ['card'] });
// @ts-expect-error: a filter of many
vault.tokens.list({ id: 'a' });
// @ts-expect-error: no permissions and no rules
vault.applications.create({ name: 'a', type: 'private' });
// @ts-expect-error: no such permission
vault.applications.create({ name: 'a', type: 'private', permissions: ['token:steal'] });
// @ts-expect-error: a session holds permissions on tokens alone
vault.sessions.authorize({ nonce: 'n', permissions: ['tenant:read'] });
// @ts-expect-error: a setting is a text
vault.tenant.replace({ name: 'a', settings: { deduplicate_tokens: true } });
// @ts-expect-error: what has no body has no answer
vault.tokens.delete('a').then((gone) => gone.id);
// @ts-expect-error: data may be anything
vault.tokens.get('a').then((token) => token.data.number);
// @ts-expect-error: no such kind
export const kind = (e: ApiError) => e.kind === 'missing';
