// The pages, grouped by the question that they answer, each with the permission that it takes.
import type { IconName } from './icons';
import type { Me } from './session';

export interface Place { to: string; label: string; icon: IconName; permission?: string; about: string }
export const places: { group: string; items: Place[] }[] = [
  { group: '', items: [{ to: '/', label: 'Overview', icon: 'overview', about: 'What happens in the vault' }] },
  { group: 'Vault', items: [{ to: '/tokens', label: 'Tokens', icon: 'token', permission: 'token:read', about: 'Find, create and reveal' }] },
  { group: 'Who may do what', items: [
    { to: '/applications', label: 'Applications', icon: 'app', permission: 'application:read', about: 'Keys, permissions and rules' },
    { to: '/sessions', label: 'Sessions', icon: 'session', permission: 'session:read', about: 'Short-lived keys of browsers' },
    { to: '/members', label: 'Members', icon: 'users', permission: 'member:read', about: 'People and roles' },
  ] },
  { group: 'Where values go', items: [
    { to: '/reactors', label: 'Reactors', icon: 'reactor', permission: 'reactor:read', about: 'Your code, with values' },
    { to: '/proxies', label: 'Proxies', icon: 'proxy', permission: 'proxy:read', about: 'Requests, with values' },
    { to: '/webhooks', label: 'Webhooks', icon: 'webhook', permission: 'webhook:read', about: 'Events, without values' },
    { to: '/elements', label: 'Card fields', icon: 'card', permission: 'application:read', about: 'Fields for your checkout page' },
  ] },
  { group: 'What happened', items: [
    { to: '/log', label: 'Audit log', icon: 'log', permission: 'log:read', about: 'Who did what' },
    { to: '/events', label: 'Events', icon: 'radio', permission: 'event:read', about: 'What changed' },
    { to: '/reports', label: 'Reports', icon: 'chart', permission: 'report:read', about: 'For auditors' },
  ] },
  { group: 'This vault', items: [
    { to: '/keys', label: 'Keys', icon: 'key', permission: 'report:read', about: 'Age and last use' },
    { to: '/settings', label: 'Settings', icon: 'settings', permission: 'tenant:read', about: 'Name, retention, secrets' },
  ] },
];

/** open returns the groups that a member may open. */
export const openTo = (me: Me) => places.map((g) => ({ ...g, items: g.items.filter((i) => !i.permission || me.may(i.permission)) })).filter((g) => g.items.length);
