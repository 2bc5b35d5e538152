export { Tokenkeep } from './client.js';
export { ApiError, ConnectionError, TokenkeepError } from './errors.js';
export { verifyCallback } from './callback.js';

export type { CallOptions, ChangeOptions, ReadOptions, ClientOptions, ForwardRequest } from './call.js';
export type { CallbackHeaders } from './callback.js';
export type { Proxies, Reactors } from './code.js';
export type { Access, Applications, Keys, Permissions, Sessions, Tenants } from './directory.js';
export type { ErrorKind, Refusal } from './errors.js';
export type { Logs } from './logs.js';
export type { Members, Roles } from './members.js';
export type { Page, Part } from './pages.js';
export type { components, operations, paths } from './schema.js';
export type { Tokens } from './tokens.js';
export type * from './types.js';
