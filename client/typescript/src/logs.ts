import type { CallOptions, Caller } from './call.js';
import { each, pageSize } from './pages.js';
import type { Page } from './pages.js';
import type { EntityType, LogEntry, LogFilter, PageQuery } from './types.js';

/** The entries of a tenant's audit log. */
export class Logs {
  readonly #caller: Caller;

  /** @internal */
  constructor(caller: Caller) {
    this.#caller = caller;
  }

  /**
   * Goes through all entries that the filter takes, newest first, and asks for
   * pages as it goes. Entries made after it began are left out: reading the log
   * is logged too, so there would be a new one with every page. It takes log:read.
   */
  list(filter?: LogFilter, options?: CallOptions): AsyncGenerator<LogEntry, void, undefined> {
    let end: Pick<LogFilter, 'end_date'> = {};
    return each(
      async (number) => {
        const page = await this.page({ ...filter, ...end, page: number, size: pageSize }, options);
        const first = page.data[0];
        if (number === 1 && first) end = { end_date: justAfter(first.created_at) };
        return page;
      },
      (entry) => entry.id,
    );
  }

  /** Returns one page of them. */
  page(query: LogFilter & PageQuery = {}, options?: CallOptions): Promise<Page<LogEntry>> {
    return this.#caller.call('listLogs', { query }, options);
  }

  /** Returns what entries may be about. It takes log:read. */
  entityTypes(options?: CallOptions): Promise<EntityType[]> {
    return this.#caller.call('listEntityTypes', {}, options);
  }
}

/** The next microsecond, which is finer than a Date is. The time is in UTC, as 2030-01-02T03:04:05.000000+00:00. */
function justAfter(time: string): string {
  const micros = Number(time.slice(20, 26)) + 1;
  const second = Date.parse(time.slice(0, 19) + 'Z') + (micros === 1_000_000 ? 1000 : 0);
  return `${new Date(second).toISOString().slice(0, 19)}.${String(micros % 1_000_000).padStart(6, '0')}Z`;
}
