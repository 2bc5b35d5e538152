/** One page of a list. */
export interface Page<T> {
  pagination: { total_items: number; page_number: number; page_size: number; total_pages: number };
  data: T[];
}

/** One part of a list that is read from place to place. */
export interface Part<T> {
  pagination: { page_size: number; next?: string };
  data: T[];
}

/** What iterators ask for, the most that the server gives. */
export const pageSize = 100;

/**
 * Goes through the items of all pages. Items that come in front meanwhile push
 * others to the next page: those that stood on the last page are passed over.
 */
export async function* each<T>(fetch: (page: number) => Promise<Page<T>>, id: (item: T) => string): AsyncGenerator<T, void, undefined> {
  let last = new Set<string>();
  for (let number = 1; ; number++) {
    const page = await fetch(number);
    const seen = new Set<string>();
    for (const item of page.data) {
      seen.add(id(item));
      if (!last.has(id(item))) yield item;
    }
    if (page.data.length === 0 || number >= page.pagination.total_pages) return;
    last = seen;
  }
}

/** Goes through a list from place to place. A server that does not move on ends it. */
export async function* eachFrom<T>(fetch: (start: string | undefined) => Promise<Part<T>>): AsyncGenerator<T, void, undefined> {
  for (let start: string | undefined; ; ) {
    const part = await fetch(start);
    yield* part.data;
    const next = part.pagination.next;
    if (part.data.length === 0 || !next || next === start) return;
    start = next;
  }
}

/** The query of a cursor; none for the beginning. */
export function placeOf(start: string | undefined): { start?: string } {
  return start === undefined ? {} : { start };
}
