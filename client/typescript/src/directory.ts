import type { CallOptions, Caller, ChangeOptions } from './call.js';
import { each, pageSize } from './pages.js';
import type { Page } from './pages.js';
import type {
  AccessFilter,
  AccessHolder,
  Application,
  ApplicationFilter,
  ApplicationType,
  AuthorizeSession,
  CallbackSecret,
  CreateApplication,
  CreatedSession,
  ExplainAccess,
  Explanation,
  Key,
  PageQuery,
  Permission,
  ReplaceApplication,
  ReplaceTenant,
  Session,
  Tenant,
  Usage,
} from './types.js';

/** The tenant that the key belongs to. */
export class Tenants {
  readonly #caller: Caller;

  /** @internal */
  constructor(caller: Caller) {
    this.#caller = caller;
  }

  /** Returns the tenant. It takes tenant:read. */
  get(options?: CallOptions): Promise<Tenant> {
    return this.#caller.call('getTenant', {}, options);
  }

  /** Changes the name and the settings; settings that are left out return to their defaults. It takes tenant:update. */
  replace(tenant: ReplaceTenant, options?: ChangeOptions): Promise<Tenant> {
    return this.#caller.call('replaceTenant', { body: tenant }, options);
  }

  /**
   * Destroys the tenant with everything in it, and there is no way back. It
   * takes tenant:delete. When an answer was lost on the way, a retry finds the
   * key unknown: then `unauthenticated` means that the tenant is gone.
   */
  delete(options?: CallOptions): Promise<void> {
    return this.#caller.call('deleteTenant', {}, options);
  }

  /** Counts the tenant's tokens. It takes report:read. */
  usage(options?: CallOptions): Promise<Usage> {
    return this.#caller.call('getUsage', {}, options);
  }

  /** Returns the secret that signs callbacks. It takes tenant:read. */
  callbackSecret(options?: CallOptions): Promise<CallbackSecret> {
    return this.#caller.call('getCallbackSecret', {}, options);
  }

  /** Replaces it; the old one goes on signing for a day. It takes tenant:update. */
  rotateCallbackSecret(options?: ChangeOptions): Promise<CallbackSecret> {
    return this.#caller.call('rotateCallbackSecret', {}, options);
  }
}

/** The callers of a tenant. */
export class Applications {
  readonly #caller: Caller;

  /** @internal */
  constructor(caller: Caller) {
    this.#caller = caller;
  }

  /** Makes an application. Its key is in the answer and nowhere else. It takes application:create. */
  create(application: CreateApplication, options?: ChangeOptions): Promise<Application> {
    return this.#caller.call('createApplication', { body: application }, options);
  }

  /** Returns an application. It takes application:read. */
  get(id: string, options?: CallOptions): Promise<Application> {
    return this.#caller.call('getApplication', { ids: [id] }, options);
  }

  /** Returns the application that the client's key belongs to. Any key will do. */
  own(options?: CallOptions): Promise<Application> {
    return this.#caller.call('getOwnApplication', {}, options);
  }

  /** Goes through all applications that the filter takes, newest first, and asks for pages as it goes. It takes application:read. */
  list(filter?: ApplicationFilter, options?: CallOptions): AsyncGenerator<Application, void, undefined> {
    return each((page) => this.page({ ...filter, page, size: pageSize }, options), (a) => a.id);
  }

  /** Returns one page of them. */
  page(query: ApplicationFilter & PageQuery = {}, options?: CallOptions): Promise<Page<Application>> {
    return this.#caller.call('listApplications', { query }, options);
  }

  /** Changes everything but the type and the keys; what is left out returns to its default. It takes application:update. */
  replace(id: string, application: ReplaceApplication, options?: ChangeOptions): Promise<Application> {
    return this.#caller.call('replaceApplication', { ids: [id], body: application }, options);
  }

  /** Removes an application with its keys. It takes application:delete. */
  delete(id: string, options?: CallOptions): Promise<void> {
    return this.#caller.call('deleteApplication', { ids: [id] }, options);
  }

  /** Gives an application one new key, which is in the answer and nowhere else, and revokes all others. It takes application:update. */
  regenerate(id: string, options?: ChangeOptions): Promise<Application> {
    return this.#caller.call('regenerateKey', { ids: [id] }, options);
  }
}

/** The keys of applications. */
export class Keys {
  readonly #caller: Caller;

  /** @internal */
  constructor(caller: Caller) {
    this.#caller = caller;
  }

  /** Gives an application one more key, which is in the answer and nowhere else. It takes application:update; `conflict` means that there are three. */
  create(application: string, options?: ChangeOptions): Promise<Key> {
    return this.#caller.call('createKey', { ids: [application] }, options);
  }

  /** Returns the keys of an application, oldest first. It takes application:read. */
  list(application: string, filter: { id?: string[] } = {}, options?: CallOptions): Promise<Key[]> {
    return this.#caller.call('listKeys', { ids: [application], query: filter }, options);
  }

  /** Returns what is known of a key. It takes application:read. */
  get(application: string, id: string, options?: CallOptions): Promise<Key> {
    return this.#caller.call('getKey', { ids: [application, id] }, options);
  }

  /** Revokes a key; one that is gone already is no error. It takes application:update. */
  delete(application: string, id: string, options?: CallOptions): Promise<void> {
    return this.#caller.call('deleteKey', { ids: [application, id] }, options);
  }
}

/** What applications may hold. */
export class Permissions {
  readonly #caller: Caller;

  /** @internal */
  constructor(caller: Caller) {
    this.#caller = caller;
  }

  /** Returns the permissions, for applications of one type or all of them. Any key will do. */
  list(filter: { application_type?: ApplicationType } = {}, options?: CallOptions): Promise<Permission[]> {
    return this.#caller.call('listPermissions', { query: filter }, options);
  }
}

/** Short-lived keys, made for browsers. */
export class Sessions {
  readonly #caller: Caller;

  /** @internal */
  constructor(caller: Caller) {
    this.#caller = caller;
  }

  /** Makes a session that may do nothing until it is authorized. Its key and its nonce are in the answer and nowhere else. It takes the key of a public application. */
  create(options?: ChangeOptions): Promise<CreatedSession> {
    return this.#caller.call('createSession', {}, options);
  }

  /** Gives the session of a nonce its rights, once. It takes the key of a private application, which can give no more than it has. */
  authorize(grant: AuthorizeSession, options?: ChangeOptions): Promise<void> {
    return this.#caller.call('authorizeSession', { body: grant }, options);
  }

  /** Goes through all live sessions, newest first, and asks for pages as it goes. It takes session:read. */
  list(options?: CallOptions): AsyncGenerator<Session, void, undefined> {
    return each((page) => this.page({ page, size: pageSize }, options), (s) => s.id);
  }

  /** Returns one page of them. */
  page(query: PageQuery = {}, options?: CallOptions): Promise<Page<Session>> {
    return this.#caller.call('listSessions', { query }, options);
  }

  /** Ends a session. It takes session:delete. */
  delete(id: string, options?: CallOptions): Promise<void> {
    return this.#caller.call('deleteSession', { ids: [id] }, options);
  }
}

/** Who may do what, and why. */
export class Access {
  readonly #caller: Caller;

  /** @internal */
  constructor(caller: Caller) {
    this.#caller = caller;
  }

  /** Says whether a holder of rights may do something, by which rule, and why the rules before it did not decide. It takes application:read. */
  explain(question: ExplainAccess, options?: CallOptions): Promise<Explanation> {
    return this.#caller.call('explainAccess', { body: question }, options);
  }

  /** Goes through the applications and live sessions that could do something to some token in a container or below it. It takes application:read. */
  who(filter: AccessFilter, options?: CallOptions): AsyncGenerator<AccessHolder, void, undefined> {
    return each((page) => this.whoPage({ ...filter, page, size: pageSize }, options), (h) => `${h.kind}/${h.id}`);
  }

  /** Returns one page of them. */
  whoPage(query: AccessFilter & PageQuery, options?: CallOptions): Promise<Page<AccessHolder>> {
    return this.#caller.call('whoHasAccess', { query }, options);
  }
}
