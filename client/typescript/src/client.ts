import { Caller } from './call.js';
import type { CallOptions, ChangeOptions, ClientOptions } from './call.js';
import { Proxies, Reactors } from './code.js';
import { Access, Applications, Keys, Permissions, Sessions, Tenants } from './directory.js';
import { Logs } from './logs.js';
import { Members, Roles } from './members.js';
import { Tokens } from './tokens.js';

/**
 * Calls one server with one key.
 *
 * It promises that a call is repeated only where repeating does no harm: when
 * its method is idempotent, when it only reads, when it carries an idempotency
 * key under which the service knows it again, or when the service said that it
 * did nothing. Retries, waits and the size of answers are bounded.
 * It never follows a redirect, which would hand the key to another server, and
 * it never prints the key or puts it into an error.
 */
export class Tokenkeep {
  readonly tenant: Tenants;
  readonly applications: Applications;
  readonly keys: Keys;
  readonly permissions: Permissions;
  readonly sessions: Sessions;
  readonly access: Access;
  readonly tokens: Tokens;
  readonly reactors: Reactors;
  readonly proxies: Proxies;
  readonly logs: Logs;
  readonly members: Members;
  readonly roles: Roles;

  readonly #caller: Caller;
  readonly #options: ClientOptions;

  constructor(options: ClientOptions) {
    this.#options = { ...options };
    const caller = new Caller(this.#options);
    this.#caller = caller;
    this.tenant = new Tenants(caller);
    this.applications = new Applications(caller);
    this.keys = new Keys(caller);
    this.permissions = new Permissions(caller);
    this.sessions = new Sessions(caller);
    this.access = new Access(caller);
    this.tokens = new Tokens(caller);
    this.reactors = new Reactors(caller);
    this.proxies = new Proxies(caller);
    this.logs = new Logs(caller);
    this.members = new Members(caller);
    this.roles = new Roles(caller);
  }

  /** Returns a client for the same server with another key, such as that of a session. */
  withKey(key: string): Tokenkeep {
    return new Tokenkeep({ ...this.#options, key });
  }

  /**
   * Puts tokens in place of what a JSON value holds, and returns the same
   * structure: an object with type and data becomes a token, any other value
   * the id of one. It takes token:create.
   */
  tokenize(value: unknown, options?: ChangeOptions): Promise<unknown> {
    return this.#caller.call('tokenize', { body: value }, options);
  }

  /**
   * Puts the values of tokens in place of the expressions in a JSON value, such
   * as `{{ id }}`, as far as the key's access goes. What comes back may be
   * plaintext: keep it no longer than the call at hand. It takes token:read.
   */
  detokenize(value: unknown, options?: CallOptions): Promise<unknown> {
    return this.#caller.call('detokenize', { body: value }, options);
  }

  /** Resolves when the server is alive. It is asked once, without the key. */
  async health(options?: CallOptions): Promise<void> {
    await this.#caller.call('getHealth', {}, options);
  }

  /** Resolves when the server can do its work. It is asked once, without the key. */
  async ready(options?: CallOptions): Promise<void> {
    await this.#caller.call('getReadiness', {}, options);
  }

  /** Returns the metrics in the text form of Prometheus. They are asked for once, without the key. */
  metrics(options?: CallOptions): Promise<string> {
    return this.#caller.call('getMetrics', {}, options);
  }
}
