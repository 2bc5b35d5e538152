// The console's vocabulary in one place: what the API calls by code names, in words for people.
import type { ReactNode } from 'react';
import type { LogEntry, Transform } from './api';
import type { IconName } from './icons';

export const shows: Record<Transform, string> = { redact: 'Nothing', mask: 'Mask', reveal: 'Value' };
export const showsLong: Record<Transform, string> = { redact: 'sees that it exists, and no data', mask: 'sees the masked value', reveal: 'sees the value itself' };

export const tokenTypes: Record<string, { one: string; many: string; icon: IconName }> = {
  card: { one: 'card', many: 'Cards', icon: 'card' },
  card_number: { one: 'card number', many: 'Card numbers', icon: 'card' },
  bank: { one: 'bank account', many: 'Bank accounts', icon: 'bank' },
  us_bank_account_number: { one: 'account number', many: 'Account numbers', icon: 'bank' },
  us_bank_routing_number: { one: 'routing number', many: 'Routing numbers', icon: 'bank' },
  social_security_number: { one: 'social security number', many: 'Social security numbers', icon: 'id' },
  employer_id_number: { one: 'employer id', many: 'Employer ids', icon: 'building' },
  token: { one: 'token', many: 'Other data', icon: 'box' },
};
export const isToken = (type: string) => type in tokenTypes;
export const kind: Record<string, { label: string; for: string }> = {
  public: { label: 'Public', for: 'for web pages and apps: everybody can read its key' },
  private: { label: 'Private', for: 'for your servers: works with tokens' },
  management: { label: 'Management', for: 'administers the tenant: never sees a value' },
};
export const permission: Record<string, { short: string; long: string; risky?: string }> = {
  'token:create': { short: 'Create', long: 'Store new values. Gets a token back, never the value.' },
  'token:read': { short: 'Read', long: 'Look at tokens, masked. A rule can show more, or less.' },
  'token:search': { short: 'Search', long: 'Find tokens by metadata, container or indexed data.' },
  'token:use': { short: 'Use', long: 'Send real values through reactors and proxies.', risky: 'reaches values' },
  'token:update': { short: 'Change', long: 'Change data, metadata and containers.' },
  'token:delete': { short: 'Delete', long: 'Destroy tokens. The value cannot come back.', risky: 'for good' },
};
export const areas: { area: string; label: string; hint: string; verbs: Record<string, string> }[] = [
  { area: 'application', label: 'Applications and keys', hint: 'Anyone who changes applications can grant access to tokens', verbs: { read: 'See', create: 'Create', update: 'Change', delete: 'Delete' } },
  { area: 'member', label: 'Members and roles', hint: 'People who sign in to this console', verbs: { read: 'See', create: 'Create', update: 'Change', delete: 'Delete' } },
  { area: 'reactor', label: 'Reactors', hint: 'Code that runs with real values', verbs: { read: 'See', create: 'Create', update: 'Change', delete: 'Delete' } },
  { area: 'proxy', label: 'Proxies', hint: 'Where real values are sent', verbs: { read: 'See', create: 'Create', update: 'Change', delete: 'Delete' } },
  { area: 'webhook', label: 'Webhooks', hint: 'Where events are sent; they never hold values', verbs: { read: 'See', create: 'Create', update: 'Change', delete: 'Delete' } },
  { area: 'session', label: 'Sessions', hint: 'Short-lived keys of browsers', verbs: { read: 'See', delete: 'End' } },
  { area: 'tenant', label: 'Tenant and settings', hint: '', verbs: { read: 'See', update: 'Change', delete: 'Delete' } },
  { area: 'log', label: 'Audit log', hint: '', verbs: { read: 'See' } },
  { area: 'event', label: 'Events', hint: '', verbs: { read: 'See' } },
  { area: 'report', label: 'Reports', hint: '', verbs: { read: 'See' } },
];

/** inWords says what a permission allows. */
export function inWords(name: string): string {
  if (permission[name]) return permission[name].short;
  const [area, verb] = name.split(':');
  const found = areas.find((a) => a.area === area);
  return found ? `${found.verbs[verb!] ?? verb} ${found.label.toLowerCase()}` : name;
}

const things: Record<string, string> = { application: 'application', key: 'key', log: 'the audit log', proxy: 'proxy', reactor: 'reactor', session: 'session', tenant: 'the tenant', member: 'member', role: 'role', webhook: 'webhook' };
const lists: Record<string, string> = { application: 'applications', key: 'keys', proxy: 'proxies', reactor: 'reactors', session: 'sessions', log: 'the audit log', member: 'members', role: 'roles', webhook: 'webhooks', event: 'events' };
const done: Record<string, string> = { create: 'created', read: 'looked at', update: 'changed', delete: 'deleted', use: 'used', rotate: 'replaced the key of' };
const refused: Record<string, string> = { create: 'creating', read: 'reading', update: 'changing', delete: 'deleting', use: 'using', rotate: 'replacing the key of' };

export const thing = (type: string) => tokenTypes[type]?.one ?? things[type] ?? type;
/** isRevealed reports whether an entry showed a person the value itself. */
export const isRevealed = (e: LogEntry) => e.outcome === 'allowed' && e.operation === 'read' && (e.transform === 'reveal' || !!e.reason);

// fold puts the tokens of a run or call into the line of the run or call: they share its trace id.
export function fold(entries: LogEntry[]): (LogEntry & { tokens?: LogEntry[] })[] {
  const calls = new Map<string, LogEntry & { tokens?: LogEntry[] }>();
  for (const e of entries) if (e.trace_id && e.operation === 'use' && (e.entity_type === 'reactor' || e.entity_type === 'proxy')) calls.set(e.trace_id, { ...e, tokens: [] });
  return entries.flatMap((e) => {
    const c = e.trace_id ? calls.get(e.trace_id) : undefined;
    if (!c || e.operation !== 'use' || e.outcome === 'denied') return [e];
    if (e.id === c.id) return [c];
    if (!isToken(e.entity_type)) return [e];
    c.tokens!.push(e);
    return [];
  });
}

export function glyph(e: LogEntry): IconName {
  if (e.outcome === 'denied') return 'ban';
  if (isRevealed(e)) return 'eye';
  if (e.operation === 'use') return e.message.includes('proxy') || e.entity_type === 'proxy' ? 'proxy' : 'reactor';
  if (e.operation === 'create') return 'plus';
  if (e.operation === 'delete') return 'trash';
  if (e.operation === 'rotate' || e.operation === 'update') return 'refresh';
  return isToken(e.entity_type) ? tokenTypes[e.entity_type]!.icon : e.entity_type === 'log' ? 'log' : e.entity_type === 'application' ? 'app' : 'file';
}

// sentence says in words what an entry of the log says in ids.
export function sentence(e: LogEntry, who: ReactNode, what: ReactNode, brief = false): ReactNode {
  const of = isToken(e.entity_type) ? thing(e.entity_type) + ' ' : e.entity_type === 'tenant' || e.entity_type === 'log' ? thing(e.entity_type) : thing(e.entity_type) + ' ';
  const named = e.entity_type !== 'tenant' && e.entity_type !== 'log' && e.entity_id !== '*';
  const via = e.message.includes('proxy preview') ? ' in a proxy preview' : isToken(e.entity_type) && e.message.includes('by reactor') ? ' in a reactor' : isToken(e.entity_type) && e.message.includes('by proxy') ? ' through a proxy' : '';
  // A refusal of a list, and one of a token that does not exist, names none.
  if (e.entity_id === '*' && e.outcome === 'denied') return <>{who} <span className="verb">was refused {refused[e.operation]}</span> {isToken(e.entity_type) ? `a ${thing(e.entity_type)}` : lists[e.entity_type] ?? thing(e.entity_type)}{via}</>;
  if (e.entity_id === '*') return <>{who} <span className="verb">listed</span> {lists[e.entity_type] ?? thing(e.entity_type) + 's'}</>;
  if (e.entity_type === 'member' && e.operation === 'use' && e.outcome === 'allowed') return <>{who} <span className="verb">signed in</span></>;
  if (e.outcome === 'denied') return <>{who} <span className="verb">was refused {refused[e.operation]}</span> {brief ? 'it' : <>{of}{named && what}</>}{via}</>;
  const verb = isRevealed(e) ? 'revealed' : e.entity_type === 'reactor' && e.operation === 'use' ? 'ran' : e.entity_type === 'proxy' && e.operation === 'use' ? 'called' : e.operation === 'read' && isToken(e.entity_type) ? 'read' : done[e.operation];
  return <>{who} <span className="verb">{verb}</span> {brief ? 'it' : <>{of}{named && what}</>}{via}</>;
}
