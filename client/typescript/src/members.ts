import type { CallOptions, Caller } from './call.js';
import { each, pageSize } from './pages.js';
import type { Page } from './pages.js';
import type { CreateMember, CreateRole, Member, MemberSession, PageQuery, ReplaceRole, Role, UpdateMember } from './types.js';

/** The people of a tenant. */
export class Members {
  readonly #caller: Caller;

  /** @internal */
  constructor(caller: Caller) {
    this.#caller = caller;
  }

  /** Adds a member. It takes member:create. */
  create(member: CreateMember, options?: CallOptions): Promise<Member> {
    return this.#caller.call('createMember', { body: member }, options);
  }

  /** Goes through all members, newest first, and asks for pages as it goes. It takes member:read. */
  list(options?: CallOptions): AsyncGenerator<Member, void, undefined> {
    return each((page) => this.page({ page, size: pageSize }, options), (m) => m.id);
  }

  /** Returns one page of them. */
  page(query: PageQuery = {}, options?: CallOptions): Promise<Page<Member>> {
    return this.#caller.call('listMembers', { query }, options);
  }

  /** Returns a member. It takes member:read. */
  get(id: string, options?: CallOptions): Promise<Member> {
    return this.#caller.call('getMember', { ids: [id] }, options);
  }

  /** Changes name, role or state of a member. It takes member:update. */
  update(id: string, change: UpdateMember, options?: CallOptions): Promise<Member> {
    return this.#caller.call('updateMember', { ids: [id], body: change }, options);
  }

  /** Removes a member, who is signed out. It takes member:delete. */
  delete(id: string, options?: CallOptions): Promise<void> {
    return this.#caller.call('deleteMember', { ids: [id] }, options);
  }

  /** Returns where a member is signed in, newest first. It takes member:read. */
  sessions(id: string, options?: CallOptions): Promise<MemberSession[]> {
    return this.#caller.call('listMemberSessions', { ids: [id] }, options);
  }

  /** Signs a member out of one browser. It takes member:update. */
  endSession(session: string, options?: CallOptions): Promise<void> {
    return this.#caller.call('endMemberSession', { ids: [session] }, options);
  }
}

/** What members may do. */
export class Roles {
  readonly #caller: Caller;

  /** @internal */
  constructor(caller: Caller) {
    this.#caller = caller;
  }

  /** Returns all roles, the built-in ones first. It takes member:read. */
  list(options?: CallOptions): Promise<Role[]> {
    return this.#caller.call('listRoles', {}, options);
  }

  /** Adds a role of the tenant. It takes member:update. */
  create(role: CreateRole, options?: CallOptions): Promise<Role> {
    return this.#caller.call('createRole', { body: role }, options);
  }

  /** Changes a role of the tenant, for all who have it. It takes member:update. */
  replace(name: string, role: ReplaceRole, options?: CallOptions): Promise<Role> {
    return this.#caller.call('replaceRole', { ids: [name], body: role }, options);
  }

  /** Removes a role that nobody has. It takes member:update. */
  delete(name: string, options?: CallOptions): Promise<void> {
    return this.#caller.call('deleteRole', { ids: [name] }, options);
  }
}
