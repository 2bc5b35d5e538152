import type { CallOptions, Caller } from './call.js';
import { each, eachFrom, pageSize, placeOf } from './pages.js';
import type { Page, Part } from './pages.js';
import type { EntityType, LogEntry, LogFilter, Named, PageQuery, PlaceQuery } from './types.js';

/** The entries of a tenant's audit log. */
export class Logs {
  readonly #caller: Caller;

  /** @internal */
  constructor(caller: Caller) {
    this.#caller = caller;
  }

  /**
   * Goes through all entries that the filter takes, newest first, and asks for
   * pages as it goes. Entries made after it began are left out. Those of reading
   * the log itself are in it only with the entity type log. It takes log:read.
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

  /** Is list by way of cursors: no part costs more than the first, and entries that are made meanwhile do not shift the others. */
  listFrom(filter?: LogFilter, options?: CallOptions): AsyncGenerator<LogEntry, void, undefined> {
    return eachFrom((start) => this.pageFrom({ ...filter, ...placeOf(start), size: pageSize }, options));
  }

  /** Returns what follows a cursor: none for the beginning, then what the part before named as next. */
  pageFrom(query: LogFilter & PlaceQuery = {}, options?: CallOptions): Promise<Part<LogEntry>> {
    return this.#caller.call('listLogsFrom', { query }, options);
  }

  /** Returns what ids belong to, at most 100, in their order. Those that nothing is known of are left out. It takes log:read. */
  names(ids: string[], options?: CallOptions): Promise<Named[]> {
    return this.#caller.call('listNames', { query: { id: ids } }, options);
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
