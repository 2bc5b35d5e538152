import type { CallOptions, Caller } from './call.js';
import { each, pageSize } from './pages.js';
import type { Page } from './pages.js';
import type { AccessReport, AccessReportFilter, ActivityQuery, ActivityReport, AttentionItem, KeyReport, PageQuery } from './types.js';

/** Reports about the tenant of the key. */
export class Reports {
  readonly #caller: Caller;

  /** @internal */
  constructor(caller: Caller) {
    this.#caller = caller;
  }

  /** Returns what happened, by bucket of time and application. It takes report:read. */
  activity(query: ActivityQuery, options?: CallOptions): Promise<ActivityReport> {
    return this.#caller.call('getActivity', { query }, options);
  }

  /** Goes through the API keys, oldest first, with their age and the day of their last use. It takes application:read. */
  keys(options?: CallOptions): AsyncGenerator<KeyReport, void, undefined> {
    return each(
      (number) => this.keysPage({ page: number, size: pageSize }, options),
      (key) => key.id,
    );
  }

  /** Returns one page of them. */
  keysPage(query: PageQuery = {}, options?: CallOptions): Promise<Page<KeyReport>> {
    return this.#caller.call('listKeyReport', { query }, options);
  }

  /** Goes through everybody who may see values, once for each permission and container where that begins. It takes application:read. */
  access(filter?: AccessReportFilter, options?: CallOptions): AsyncGenerator<AccessReport, void, undefined> {
    return each(
      (number) => this.accessPage({ ...filter, page: number, size: pageSize }, options),
      (row) => `${row.kind}/${row.id}/${row.permission}${row.container ?? ''}`,
    );
  }

  /** Returns one page of them. */
  accessPage(query: AccessReportFilter & PageQuery = {}, options?: CallOptions): Promise<Page<AccessReport>> {
    return this.#caller.call('listAccessReport', { query }, options);
  }

  /** Returns what deserves attention, most urgent first. It takes report:read, and shows only things that the key may read. */
  attention(options?: CallOptions): Promise<AttentionItem[]> {
    return this.#caller.call('getAttention', {}, options);
  }
}
