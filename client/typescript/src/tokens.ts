import type { CallOptions, Caller, ChangeOptions, ReadOptions } from './call.js';
import { each, eachFrom, pageSize, placeOf } from './pages.js';
import type { Page, Part } from './pages.js';
import type { CreateToken, PageQuery, PlaceQuery, Token, TokenFilter, UpdateToken } from './types.js';

/** The protected values of a tenant. How much of their data a call shows is for the access of the key to say. */
export class Tokens {
  readonly #caller: Caller;

  /** @internal */
  constructor(caller: Caller) {
    this.#caller = caller;
  }

  /** Makes a token. The answer shows its data masked. It takes token:create. */
  create(token: CreateToken, options?: ChangeOptions): Promise<Token> {
    return this.#caller.call('createToken', { body: token }, options);
  }

  /** Returns a token. It takes token:read. */
  get(id: string, options?: ReadOptions): Promise<Token> {
    return this.#caller.call('getToken', { ids: [id], query: atMost(options) }, options);
  }

  /** Changes a token by a merge patch: in data, mask and metadata null removes a member. It takes token:update. */
  update(id: string, patch: UpdateToken, options?: ChangeOptions): Promise<Token> {
    return this.#caller.call('updateToken', { ids: [id], body: patch }, options);
  }

  /** Returns a token with its plaintext, for a reason that the log keeps. It takes token:read with reveal on every container of the token. */
  reveal(id: string, reason: string, options?: CallOptions): Promise<Token> {
    return this.#caller.call('revealToken', { ids: [id], body: { reason } }, options);
  }

  /** Removes a token. It takes token:delete. When an answer was lost on the way, a retry finds nothing: then `not_found` means that it is gone. */
  delete(id: string, options?: CallOptions): Promise<void> {
    return this.#caller.call('deleteToken', { ids: [id] }, options);
  }

  /** Goes through all tokens that the filter takes, newest first, and asks for pages as it goes. For many thousands listFrom is faster. It takes token:read. */
  list(filter?: TokenFilter, options?: CallOptions): AsyncGenerator<Token, void, undefined> {
    return each((page) => this.page({ ...filter, page, size: pageSize }, options), idOf);
  }

  /** Returns one page of them. */
  page(query: TokenFilter & PageQuery = {}, options?: CallOptions): Promise<Page<Token>> {
    return this.#caller.call('listTokens', { query }, options);
  }

  /** Is list by way of places: no part costs more than the first, and tokens that come or go meanwhile do not shift the others. */
  listFrom(filter?: TokenFilter, options?: CallOptions): AsyncGenerator<Token, void, undefined> {
    return eachFrom((start) => this.pageFrom({ ...filter, ...placeOf(start), size: pageSize }, options));
  }

  /** Returns what follows a place: none for the beginning, then what the part before named as next. */
  pageFrom(query: TokenFilter & PlaceQuery = {}, options?: CallOptions): Promise<Part<Token>> {
    return this.#caller.call('listTokensFrom', { query }, options);
  }

  /** Goes through all tokens that a query finds, such as `type:card AND metadata.tier:gold`, newest first. It takes token:search. */
  search(query: string, options?: ReadOptions): AsyncGenerator<Token, void, undefined> {
    return each((page) => this.searchPage(query, { page, size: pageSize }, options), idOf);
  }

  /** Returns one page of them. */
  searchPage(query: string, page: PageQuery = {}, options?: ReadOptions): Promise<Page<Token>> {
    return this.#caller.call('searchTokens', { query: atMost(options), body: { query, ...page } }, options);
  }

  /** Is search by way of places, as listFrom is list. */
  searchFrom(query: string, options?: ReadOptions): AsyncGenerator<Token, void, undefined> {
    return eachFrom((start) => this.searchPageFrom(query, { ...placeOf(start), size: pageSize }, options));
  }

  /** Returns what follows a place, as pageFrom does. */
  searchPageFrom(query: string, place: PlaceQuery = {}, options?: ReadOptions): Promise<Part<Token>> {
    return this.#caller.call('searchTokensFrom', { query: atMost(options), body: { query, ...place } }, options);
  }
}

function idOf(token: Token): string {
  return token.id;
}

function atMost(options?: ReadOptions): Pick<ReadOptions, 'transform'> {
  return options?.transform === undefined ? {} : { transform: options.transform };
}
