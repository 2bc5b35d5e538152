import type { CallOptions, Caller, ChangeOptions } from './call.js';
import { each, pageSize, placeOf } from './pages.js';
import type { Page } from './pages.js';
import type { Delivery, Event, EventFilter, EventPage, PageQuery, PlaceQuery, SetWebhook, Webhook, WebhookFilter } from './types.js';

/** What happened to the entities of a tenant. */
export class Events {
  readonly #caller: Caller;

  /** @internal */
  constructor(caller: Caller) {
    this.#caller = caller;
  }

  /** Goes through all events that the filter takes, oldest first, and asks for pages as it goes. It takes event:read. */
  async *list(filter?: EventFilter, options?: CallOptions): AsyncGenerator<Event, void, undefined> {
    for (let start: string | undefined; ; ) {
      const part = await this.page({ ...filter, ...placeOf(start), size: pageSize }, options);
      yield* part.data;
      if (!part.pagination.more || part.pagination.next === start) return;
      start = part.pagination.next;
    }
  }

  /**
   * Returns what follows a cursor: none for the oldest events, latest for those that come, then what the part before named as next. With wait, a
   * call that finds nothing waits that many seconds for an event.
   */
  page(query: EventFilter & PlaceQuery & { wait?: number } = {}, options?: CallOptions): Promise<EventPage> {
    return this.#caller.call('listEvents', { query }, options);
  }
}

/** The addresses that get events of a tenant. */
export class Webhooks {
  readonly #caller: Caller;

  /** @internal */
  constructor(caller: Caller) {
    this.#caller = caller;
  }

  /** Makes a webhook. The answer has its secret, which is not shown again. It takes webhook:create. */
  create(webhook: SetWebhook, options?: ChangeOptions): Promise<Webhook> {
    return this.#caller.call('createWebhook', { body: webhook }, options);
  }

  /** Returns a webhook without its secret. It takes webhook:read. */
  get(id: string, options?: CallOptions): Promise<Webhook> {
    return this.#caller.call('getWebhook', { ids: [id] }, options);
  }

  /** Goes through all webhooks that the filter takes, newest first, and asks for pages as it goes. It takes webhook:read. */
  list(filter?: WebhookFilter, options?: CallOptions): AsyncGenerator<Webhook, void, undefined> {
    return each((page) => this.page({ ...filter, page, size: pageSize }, options), (w) => w.id);
  }

  /** Returns one page of them. */
  page(query: WebhookFilter & PageQuery = {}, options?: CallOptions): Promise<Page<Webhook>> {
    return this.#caller.call('listWebhooks', { query }, options);
  }

  /** Changes everything except the secret. It takes webhook:update. */
  replace(id: string, webhook: SetWebhook, options?: ChangeOptions): Promise<Webhook> {
    return this.#caller.call('replaceWebhook', { ids: [id], body: webhook }, options);
  }

  /** Removes a webhook. It takes webhook:delete. */
  delete(id: string, options?: CallOptions): Promise<void> {
    return this.#caller.call('deleteWebhook', { ids: [id] }, options);
  }

  /** Gives a webhook a new secret, which is not shown again. The old one signs too for a day. It takes webhook:update. */
  rotateSecret(id: string, options?: ChangeOptions): Promise<Webhook> {
    return this.#caller.call('rotateWebhookSecret', { ids: [id] }, options);
  }

  /** Sends a message to a webhook at once and returns how that went. It takes webhook:update. */
  test(id: string, options?: CallOptions): Promise<Delivery> {
    return this.#caller.call('testWebhook', { ids: [id] }, options);
  }

  /** Goes through the deliveries to a webhook, newest first, and asks for pages as it goes. It takes webhook:read. */
  deliveries(id: string, options?: CallOptions): AsyncGenerator<Delivery, void, undefined> {
    return each((page) => this.deliveriesPage(id, { page, size: pageSize }, options), (d) => d.id);
  }

  /** Returns one page of them. */
  deliveriesPage(id: string, query: PageQuery = {}, options?: CallOptions): Promise<Page<Delivery>> {
    return this.#caller.call('listDeliveries', { ids: [id], query }, options);
  }

  /** Sends the event of a delivery again. It takes webhook:update. */
  resend(id: string, delivery: string, options?: CallOptions): Promise<Delivery> {
    return this.#caller.call('resendDelivery', { ids: [id, delivery] }, options);
  }
}
