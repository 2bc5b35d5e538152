import type { CallOptions, Caller, ChangeOptions, ForwardRequest } from './call.js';
import { each, pageSize } from './pages.js';
import type { Page } from './pages.js';
import type { AsyncReactor, CodeVersion, PageQuery, PatchProxy, PatchReactor, PreviewProxy, Proxy, ProxyFilter, ProxyPreview, React, Reactor, ReactorFilter, ReactorResponse, Run, Trial, TryReactor, WriteProxy, WriteReactor } from './types.js';

/** A tenant's own code on the server. */
export class Reactors {
  readonly #caller: Caller;

  /** @internal */
  constructor(caller: Caller) {
    this.#caller = caller;
  }

  /** Makes a reactor. It takes reactor:create. */
  create(reactor: WriteReactor, options?: ChangeOptions): Promise<Reactor> {
    return this.#caller.call('createReactor', { body: reactor }, options);
  }

  /** Returns a reactor with its code and configuration. It takes reactor:read. */
  get(id: string, options?: CallOptions): Promise<Reactor> {
    return this.#caller.call('getReactor', { ids: [id] }, options);
  }

  /** Goes through all reactors that the filter takes, newest first, and asks for pages as it goes. It takes reactor:read. */
  list(filter?: ReactorFilter, options?: CallOptions): AsyncGenerator<Reactor, void, undefined> {
    return each((page) => this.page({ ...filter, page, size: pageSize }, options), (r) => r.id);
  }

  /** Returns one page of them. */
  page(query: ReactorFilter & PageQuery = {}, options?: CallOptions): Promise<Page<Reactor>> {
    return this.#caller.call('listReactors', { query }, options);
  }

  /** Changes all of a reactor; what is left out returns to its default, and a reactor that was read can be given as it is. It takes reactor:update. */
  replace(id: string, reactor: WriteReactor, options?: ChangeOptions): Promise<Reactor> {
    return this.#caller.call('replaceReactor', { ids: [id], body: reactor }, options);
  }

  /** Changes parts of a reactor by a merge patch. It takes reactor:update. */
  patch(id: string, patch: PatchReactor, options?: ChangeOptions): Promise<void> {
    return this.#caller.call('patchReactor', { ids: [id], body: patch }, options);
  }

  /** Removes a reactor. It takes reactor:delete. */
  delete(id: string, options?: CallOptions): Promise<void> {
    return this.#caller.call('deleteReactor', { ids: [id] }, options);
  }

  /**
   * Runs a reactor and waits for what it returns; with a callback URL it only
   * starts it. It takes token:use, also on each container of the tokens in the
   * arguments.
   *
   * An error that the code threw is an ApiError with the status that it chose.
   * The code may have had effects by then, so the call is tried again only when
   * the connection broke, under its idempotency key: then it gets the first answer.
   */
  react(id: string, run: React = {}, options?: ChangeOptions): Promise<ReactorResponse> {
    return this.#caller.call('react', { ids: [id], body: run }, options);
  }

  /** Starts a run and returns the id of its result, which result fetches with the same key for a day. It takes token:use as react does. */
  reactAsync(id: string, run: React = {}, options?: ChangeOptions): Promise<AsyncReactor> {
    return this.#caller.call('reactAsync', { ids: [id], body: run }, options);
  }

  /**
   * Returns what a run came to, to the application or session that started it.
   * `not_found` means that it has not ended, or was never started; a run that
   * failed is an ApiError with its status.
   */
  result(id: string, requestId: string, options?: CallOptions): Promise<ReactorResponse> {
    return this.#caller.call('getReactorResult', { ids: [id, requestId] }, options);
  }

  /** Returns one page of what is remembered of a reactor's last runs, with what they printed. It takes reactor:read. */
  runs(id: string, query: PageQuery = {}, options?: CallOptions): Promise<Page<Run>> {
    return this.#caller.call('listReactorRuns', { ids: [id], query }, options);
  }

  /** Runs code that is not saved, once. It takes reactor:update and, with an application or tokens among the arguments, token:use. */
  try(trial: TryReactor, options?: CallOptions): Promise<Trial> {
    return this.#caller.call('tryReactor', { body: trial }, options);
  }

  /** Returns the last versions of a reactor's code, newest first. It takes reactor:read. */
  versions(id: string, options?: CallOptions): Promise<CodeVersion[]> {
    return this.#caller.call('listReactorVersions', { ids: [id] }, options);
  }

  /** Gives a reactor the code of a version. It takes reactor:update. */
  restore(id: string, version: number, options?: ChangeOptions): Promise<Reactor> {
    return this.#caller.call('restoreReactor', { ids: [id, String(version)] }, options);
  }
}

/** The destinations of a tenant, and the calls that are forwarded to them. */
export class Proxies {
  readonly #caller: Caller;

  /** @internal */
  constructor(caller: Caller) {
    this.#caller = caller;
  }

  /** Returns the last versions of a proxy's code, newest first. It takes proxy:read. */
  versions(id: string, options?: CallOptions): Promise<CodeVersion[]> {
    return this.#caller.call('listProxyVersions', { ids: [id] }, options);
  }

  /** Gives a proxy the code of a version. It takes proxy:update. */
  restore(id: string, version: number, options?: ChangeOptions): Promise<Proxy> {
    return this.#caller.call('restoreProxy', { ids: [id, String(version)] }, options);
  }

  /** Makes a proxy with a key of its own. It takes proxy:create. */
  create(proxy: WriteProxy, options?: ChangeOptions): Promise<Proxy> {
    return this.#caller.call('createProxy', { body: proxy }, options);
  }

  /** Returns a proxy with its key. It takes proxy:read. */
  get(id: string, options?: CallOptions): Promise<Proxy> {
    return this.#caller.call('getProxy', { ids: [id] }, options);
  }

  /** Goes through all proxies that the filter takes, newest first, and asks for pages as it goes. It takes proxy:read. */
  list(filter?: ProxyFilter, options?: CallOptions): AsyncGenerator<Proxy, void, undefined> {
    return each((page) => this.page({ ...filter, page, size: pageSize }, options), (p) => p.id);
  }

  /** Returns one page of them. */
  page(query: ProxyFilter & PageQuery = {}, options?: CallOptions): Promise<Page<Proxy>> {
    return this.#caller.call('listProxies', { query }, options);
  }

  /**
   * Changes everything but the key; what is left out returns to its default, and
   * a proxy that was read can be given as it is. The application of a proxy
   * without require_auth is removed by `application: null` only. It takes proxy:update.
   */
  replace(id: string, proxy: WriteProxy, options?: ChangeOptions): Promise<Proxy> {
    return this.#caller.call('replaceProxy', { ids: [id], body: proxy }, options);
  }

  /**
   * Changes a proxy by a merge patch: what is absent stays, what is null is
   * removed. The application of a proxy without require_auth is removed by
   * `application: null` only. It takes proxy:update.
   */
  patch(id: string, patch: PatchProxy, options?: ChangeOptions): Promise<void> {
    return this.#caller.call('patchProxy', { ids: [id], body: patch }, options);
  }

  /** Removes a proxy. It takes proxy:delete. */
  delete(id: string, options?: CallOptions): Promise<void> {
    return this.#caller.call('deleteProxy', { ids: [id] }, options);
  }

  /** Gives a proxy a new key, which is in the answer; the old one is dead at once. It takes proxy:update. */
  rotateKey(id: string, options?: ChangeOptions): Promise<Proxy> {
    return this.#caller.call('rotateProxyKey', { ids: [id] }, options);
  }

  /**
   * Shows the request that a call would send, with placeholders in place of the
   * values of tokens, or masks of those that the caller may itself read. Nothing is
   * sent and no code runs. It takes proxy:read.
   */
  preview(id: string, request: PreviewProxy, options?: CallOptions): Promise<ProxyPreview> {
    return this.#caller.call('previewProxy', { ids: [id], body: request }, options);
  }

  /**
   * Sends a request through a proxy, with the values of tokens where `{{ id }}`
   * stands in its body, and returns what the destination answered, whatever the
   * status. An answer of the proxy itself is an ApiError. It is sent once, and
   * takes token:use unless the proxy asks for no key.
   */
  call(request: ForwardRequest): Promise<Response> {
    return this.#caller.forward(request);
  }
}
