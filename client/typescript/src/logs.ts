import type { CallOptions, Caller } from './call.js';
import { each, eachFrom, pageSize, placeOf } from './pages.js';
import type { Page, Part } from './pages.js';
import type { EntityType, LogEntry, LogFilter, LogIntegrity, LogVerification, Named, PageQuery, PlaceQuery, StreamFilter } from './types.js';

/** An entry of a stream, and where a stream continues after it. */
export interface LogEvent {
  id: string;
  entry: LogEntry;
}

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

  /**
   * Goes through the entries that the filter takes as they are sealed, a few
   * seconds after they are made, until the server ends the stream or the signal
   * aborts. To continue, call it again with the id of the last event. It takes
   * log:read.
   */
  async *stream(filter: StreamFilter = {}, options: CallOptions & { lastEventId?: string } = {}): AsyncGenerator<LogEvent, void, undefined> {
    const { lastEventId, ...call } = options;
    const extra: Record<string, string> = lastEventId === undefined ? {} : { 'Last-Event-ID': lastEventId };
    const answer = await this.#caller.open('streamLogs', { query: filter }, 'text/event-stream', extra, call);
    if (!answer.body) return;
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = '';
    try {
      for (;;) {
        const { value, done } = await reader.read();
        if (done) return;
        rest += value;
        for (let end = rest.indexOf('\n\n'); end >= 0; end = rest.indexOf('\n\n')) {
          const event = eventOf(rest.slice(0, end));
          rest = rest.slice(end + 2);
          if (event) yield event;
        }
      }
    } finally {
      await reader.cancel().catch(() => undefined);
    }
  }

  /** Returns all entries that the filter takes, newest first, as lines of JSON or as CSV, to be read as they come. It takes log:read. */
  export(query: LogFilter & { format?: 'ndjson' | 'csv' } = {}, options?: CallOptions): Promise<Response> {
    return this.#caller.open('exportLogs', { query }, 'application/x-ndjson, text/csv', {}, options);
  }

  /** Returns the signed head of the log, what is not sealed yet, and when the log was last verified and by whom. It takes log:read. */
  integrity(options?: CallOptions): Promise<LogIntegrity> {
    return this.#caller.call('getLogIntegrity', {}, options);
  }

  /** Starts a verification of the log, or returns the one that is under way. It takes log:read. */
  verify(options?: CallOptions): Promise<LogVerification> {
    return this.#caller.call('verifyLog', {}, options);
  }

  /** Returns how far a verification has come, and what it found. It takes log:read. */
  verification(id: string, options?: CallOptions): Promise<LogVerification> {
    return this.#caller.call('getLogVerification', { ids: [id] }, options);
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

/** Reads one server-sent event; undefined for a comment. */
function eventOf(text: string): LogEvent | undefined {
  let id = '';
  let data = '';
  for (const line of text.split('\n')) {
    if (line.startsWith('id: ')) id = line.slice(4);
    if (line.startsWith('data: ')) data += line.slice(6);
  }
  return data === '' ? undefined : { id, entry: JSON.parse(data) as LogEntry };
}

/** The next microsecond, which is finer than a Date is. The time is in UTC, as 2030-01-02T03:04:05.000000+00:00. */
function justAfter(time: string): string {
  const micros = Number(time.slice(20, 26)) + 1;
  const second = Date.parse(time.slice(0, 19) + 'Z') + (micros === 1_000_000 ? 1000 : 0);
  return `${new Date(second).toISOString().slice(0, 19)}.${String(micros % 1_000_000).padStart(6, '0')}Z`;
}
