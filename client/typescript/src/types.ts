import type { Query } from './operations.js';
import type { components } from './schema.js';

type Schemas = components['schemas'];

export type Tenant = Schemas['Tenant'];
export type ReplaceTenant = Schemas['ReplaceTenant'];
export type TenantSettings = Schemas['TenantSettings'];
export type Usage = Schemas['Usage'];
export type CallbackSecret = Schemas['CallbackSecret'];

export type Application = Schemas['Application'];
export type ApplicationType = Schemas['ApplicationType'];
export type CreateApplication = Schemas['CreateApplication'];
export type ReplaceApplication = Schemas['ReplaceApplication'];
export type Key = Schemas['Key'];
export type Permission = Schemas['Permission'];
export type PermissionName = Schemas['PermissionName'];
export type Rule = Schemas['Rule'];

export type CreatedSession = Schemas['CreatedSession'];
export type AuthorizeSession = Schemas['AuthorizeSession'];
export type Session = Schemas['Session'];
export type Member = Schemas['Member'];
export type CreateMember = Schemas['CreateMember'];
export type UpdateMember = Schemas['UpdateMember'];
export type MemberSession = Schemas['SignIn'];
export type Role = Schemas['Role'];
export type CreateRole = Schemas['CreateRole'];
export type ReplaceRole = Schemas['ReplaceRole'];
export type SessionRule = Schemas['SessionRule'];
export type ExplainAccess = Schemas['ExplainAccess'];
export type Explanation = Schemas['Explanation'];
export type AccessHolder = Schemas['AccessHolder'];

export type Token = Schemas['Token'];
export type TokenType = Schemas['TokenType'];
export type CardData = Schemas['CardData'];
export type BankData = Schemas['BankData'];
export type CreateToken = Schemas['CreateToken'];
export type UpdateToken = Schemas['UpdateToken'];

export type Reactor = Schemas['Reactor'];
export type WriteReactor = Schemas['WriteReactor'];
export type PatchReactor = Schemas['PatchReactor'];
export type React = Schemas['React'];
export type ReactorResponse = Schemas['ReactorResponse'];
export type AsyncReactor = Schemas['AsyncReactor'];
export type Run = Schemas['Run'];

export type Proxy = Schemas['Proxy'];
export type WriteProxy = Schemas['WriteProxy'];
export type PatchProxy = Schemas['PatchProxy'];
export type PreviewProxy = Schemas['PreviewProxy'];
export type ProxyPreview = Schemas['ProxyPreview'];

export type LogEntry = Schemas['LogEntry'];
export type Named = Schemas['Named'];
export type EntityType = Schemas['EntityType'];

/** A page to ask for, from 1, and how many items it has, 1 to 100. */
export interface PageQuery {
  page?: number;
  size?: number;
}

/** A place in a list to go on from, and how many items to ask for. */
export interface PlaceQuery {
  start?: string;
  size?: number;
}

type Filter<Q> = Omit<Q, 'page' | 'size' | 'start'>;

/** Which tokens. Those asked for by `id` come in that order. */
export type TokenFilter = Filter<Query<'listTokens'>>;
export type ApplicationFilter = Filter<Query<'listApplications'>>;
export type ReactorFilter = Filter<Query<'listReactors'>>;
export type ProxyFilter = Filter<Query<'listProxies'>>;
/** Which log entries: `start_date` or later, and before `end_date`. */
export type LogFilter = Filter<Query<'listLogs'>>;
export type AccessFilter = Filter<Query<'whoHasAccess'>>;
