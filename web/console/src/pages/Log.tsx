import { Button, Menu, Select, Switch, TextInput } from '@mantine/core';
import { useInfiniteQuery, useQuery } from '@tanstack/react-query';
import { Fragment, useEffect, useMemo, useRef, useState } from 'react';
import { useSearchParams } from 'react-router';
import { call, download, isMissing, query, save, type LogEntry, type Part } from '../api';
import { useApps, useMembers } from '../data';
import { Icon } from '../icons';
import { useMe } from '../session';
import { Closed, Curl, Empty, Entry, Failed, Lines, PageHead, Panel } from '../ui';
import { fold, isRevealed, isToken, thing } from '../words';
import { Integrity } from './Integrity';

const verbs = [['create', 'Created'], ['read', 'Looked at'], ['use', 'Used'], ['update', 'Changed'], ['delete', 'Deleted'], ['rotate', 'Replaced a key']] as const;
const spans: Record<string, [string, number]> = { '15m': ['Last 15 minutes', 15], '1h': ['Last hour', 60], '24h': ['Last 24 hours', 1440], '7d': ['Last 7 days', 10080], all: ['All time', 0] };
const size = 100;
export interface Filter { entity_type: string; entity_id: string; actor_id: string; operation: string; outcome: string; transform: string; trace_id: string; start_date: string }

const matches = (f: Filter) => (e: LogEntry) => (!f.entity_type || e.entity_type === f.entity_type) && (!f.entity_id || e.entity_id === f.entity_id) && (!f.actor_id || e.actor_id === f.actor_id) && (!f.operation || e.operation === f.operation)
  && (!f.outcome || e.outcome === f.outcome) && (!f.transform || e.transform === f.transform) && (!f.trace_id || e.trace_id === f.trace_id);

/** useTail follows the log: by the stream of the server, or by asking again where there is none. */
function useTail(filter: Filter, live: boolean, newest: string | undefined) {
  const [tail, setTail] = useState<LogEntry[]>([]), [streams, setStreams] = useState(true);
  const fresh = useRef(new Set<string>());
  const key = JSON.stringify(filter);
  const add = useRef((entries: LogEntry[]) => setTail((old) => {
    const have = new Set(old.map((e) => e.id)), more = entries.filter((e) => !have.has(e.id));
    more.forEach((e) => fresh.current.add(e.id));
    return more.length ? [...more, ...old].slice(0, 1000) : old;
  })).current;
  useEffect(() => { setTail([]); fresh.current.clear(); }, [key]);
  useEffect(() => {
    if (!live || !streams) return;
    const { start_date: _, ...rest } = filter;
    const source = new EventSource(`/v2/logs/stream${query(rest)}`);
    source.addEventListener('entry', (e) => add([JSON.parse(e.data) as LogEntry]));
    source.onerror = () => { if (source.readyState === EventSource.CLOSED) setStreams(false); };
    return () => source.close();
  }, [key, live, streams]);
  useEffect(() => {
    if (!live || streams || !newest) return;
    const ask = async () => {
      if (document.hidden) return;
      try { add((await call<Part<LogEntry>>('GET', `/v2/logs${query({ ...filter, start_date: newest, size })}`)).data.filter((e) => e.created_at > newest)); } catch { /* the next round tries again */ }
    };
    const timer = setInterval(ask, 4000);
    return () => clearInterval(timer);
  }, [key, live, streams, newest]);
  return { tail, fresh: fresh.current };
}

/** Export saves the entries of the filter. */
function Export({ filter, shown }: { filter: Filter; shown: LogEntry[] }) {
  const [error, setError] = useState<unknown>();
  const all = (format: string, name: string, type: string) => download(`/logs/export${query({ ...filter, format })}`, name, type).catch((e) => {
    if (isMissing(e)) save(new Blob(shown.map((x) => JSON.stringify(x) + '\n'), { type: 'application/x-ndjson' }), 'audit-log.ndjson');
    else setError(e);
  });
  return (
    <>
      <Menu position="bottom-end" shadow="md" width={220}>
        <Menu.Target><Button variant="default" leftSection={<Icon name="download" size={14} />}>Export</Button></Menu.Target>
        <Menu.Dropdown>
          <Menu.Item onClick={() => all('csv', 'audit-log.csv', 'text/csv')}>All that match, as CSV</Menu.Item>
          <Menu.Item onClick={() => all('ndjson', 'audit-log.ndjson', 'application/x-ndjson')}>All that match, as lines of JSON</Menu.Item>
        </Menu.Dropdown>
      </Menu>
      {error !== undefined && <Failed error={error} />}
    </>
  );
}

export default function Log() {
  const me = useMe();
  const [params, setParams] = useSearchParams();
  const get = (k: string) => params.get(k) ?? '';
  const put = (k: string, v: string) => { const n = new URLSearchParams(params); v ? n.set(k, v) : n.delete(k); setParams(n, { replace: true }); };
  const since = get('since') || '24h', mine = get('mine') === '1', live = get('live') !== '0';
  const start = useMemo(() => (spans[since]?.[1] ? new Date(Date.now() - spans[since]![1] * 60_000).toISOString() : ''), [since]);
  const filter: Filter = { entity_type: get('type'), entity_id: get('entity'), actor_id: get('actor'), operation: get('operation'), outcome: get('outcome'), transform: get('shown'), trace_id: get('trace'), start_date: start };
  const [draft, setDraft] = useState(filter.entity_id), [open, setOpen] = useState<string>(), [filters, setFilters] = useState(false);
  const may = me.may('log:read');
  const apps = useApps().data, members = useMembers().data;
  const types = useQuery({ queryKey: ['entity-types'], enabled: may, queryFn: () => call<{ display_name: string; value: string }[]>('GET', '/logs/entity-types'), staleTime: Infinity });
  const path = `/v2/logs${query({ ...filter, size })}`;
  const list = useInfiniteQuery({
    queryKey: ['logs', path], enabled: may, initialPageParam: undefined as string | undefined, getNextPageParam: (p: Part<LogEntry>) => p.pagination.next,
    queryFn: ({ pageParam }) => call<Part<LogEntry>>('GET', path + (pageParam ? `&start=${encodeURIComponent(pageParam)}` : '')),
  });
  const { tail, fresh } = useTail(filter, live && may, list.data?.pages[0]?.data[0]?.created_at ?? (list.data ? start : undefined));
  const all = useMemo(() => { const seen = new Set<string>(); return [...tail, ...(list.data?.pages.flatMap((p) => p.data) ?? [])].filter((e) => !seen.has(e.id) && seen.add(e.id)); }, [tail, list.data]);
  if (!may) return <><PageHead title="Audit log" /><Panel label="Entries"><Closed permission="log:read" /></Panel></>;
  const own = (e: LogEntry) => e.actor_id === me.member.id && e.operation === 'read' && e.outcome === 'allowed' && !isRevealed(e);
  const narrow = filter.entity_id || filter.entity_type || filter.operation || filter.trace_id;
  const kept = all.filter(matches(filter)).filter((e) => mine || !own(e));
  const shown = narrow ? kept : fold(kept);
  const filtered = narrow || filter.actor_id || filter.outcome || filter.transform;
  let day = '';
  return (
    <>
      <PageHead title="Audit log" about="Who did what, and who was refused. Entries hold ids and times, never values." actions={<><Curl path={path} /><Integrity /><Export filter={filter} shown={kept} /></>} />
      <Panel label="Entries">
        <div className="bar" role="search">
          <form className="grow" style={{ minWidth: 180, maxWidth: 240 }} onSubmit={(e) => { e.preventDefault(); put('entity', draft.trim()); }}><TextInput aria-label="Id" placeholder="Id of a token, application…" leftSection={<Icon name="search" size={14} />} value={draft} onChange={(e) => setDraft(e.currentTarget.value)} onBlur={() => draft.trim() !== filter.entity_id && put('entity', draft.trim())} /></form>
          <Button className="only-narrow" variant="default" aria-expanded={filters} leftSection={<Icon name="filter" size={14} />} onClick={() => setFilters(!filters)}>Filter</Button>
          <div className={`row wrap filters ${filters ? 'open' : ''}`}>
            <Select aria-label="Who" placeholder="Anybody" clearable clearButtonProps={{ 'aria-label': 'Anybody' }} searchable w={160} value={filter.actor_id || null} onChange={(v) => put('actor', v ?? '')} data={[{ group: 'People', items: (members ?? []).map((m) => ({ value: m.id, label: m.name || m.email || m.id })) }, { group: 'Applications', items: (apps ?? []).map((a) => ({ value: a.id, label: a.name })) }].filter((g) => g.items.length)} />
            <Select aria-label="Did what" placeholder="Did anything" clearable clearButtonProps={{ 'aria-label': 'Did anything' }} w={136} value={filter.operation || null} onChange={(v) => put('operation', v ?? '')} data={verbs.map(([value, label]) => ({ value, label }))} />
            <Select aria-label="To what" placeholder="To anything" clearable clearButtonProps={{ 'aria-label': 'To anything' }} w={150} value={filter.entity_type || null} onChange={(v) => put('type', v ?? '')} data={(types.data ?? []).map((t) => ({ value: t.value, label: isToken(t.value) ? thing(t.value).replace(/^./, (c) => c.toUpperCase()) : t.display_name }))} />
            <Select aria-label="Outcome" placeholder="Any outcome" clearable clearButtonProps={{ 'aria-label': 'Any outcome' }} w={126} value={filter.outcome || null} onChange={(v) => put('outcome', v ?? '')} data={[{ value: 'allowed', label: 'Allowed' }, { value: 'denied', label: 'Refused' }]} />
            <Select aria-label="Showed" placeholder="Showed anything" clearable clearButtonProps={{ 'aria-label': 'Showed anything' }} w={140} value={filter.transform || null} onChange={(v) => put('shown', v ?? '')} data={[{ value: 'reveal', label: 'Showed the value' }, { value: 'mask', label: 'Showed the mask' }, { value: 'redact', label: 'Showed nothing' }]} />
            <Select aria-label="Since" allowDeselect={false} w={142} value={since} onChange={(v) => put('since', v ?? '')} data={Object.entries(spans).map(([value, [label]]) => ({ value, label }))} />
            {filtered && <Button variant="subtle" color="gray" className="quiet" onClick={() => { setDraft(''); setParams({}); }}>Clear</Button>}
          </div>
        </div>
        <div className="row wrap" style={{ padding: '8px 14px', borderBottom: '1px solid var(--line)', gap: 18 }}>
          <Switch label={<span className="row" style={{ gap: 6 }}>Live {live && <i className="livedot" />}</span>} checked={live} onChange={(e) => put('live', e.currentTarget.checked ? '' : '0')} />
          <Switch label="Show your own looks" checked={mine} onChange={(e) => put('mine', e.currentTarget.checked ? '1' : '')} />
          <span className="grow" /><span className="dim num" aria-live="polite">{shown.length.toLocaleString('en')} shown{list.hasNextPage ? ', there are more' : ''}</span>
        </div>
        {list.isError ? <div style={{ padding: 14 }}><Failed error={list.error} retry={() => list.refetch()} /></div> : list.isLoading ? <Lines n={10} /> : shown.length === 0 ? <Empty icon="log" title="No entries match" action={list.hasNextPage ? <Button variant="default" onClick={() => list.fetchNextPage()}>Look further back</Button> : undefined}>{filtered ? 'Nothing like this happened in that time.' : 'What people and applications do with the vault shows up here.'}</Empty> : shown.slice(0, 600).map((e) => {
          const d = new Date(e.created_at).toLocaleDateString('en-GB', { weekday: 'long', day: 'numeric', month: 'long' });
          const head = d !== day; day = d;
          return <Fragment key={e.id}>{head && <div className="dayline">{d}</div>}<Entry e={e} fresh={fresh.has(e.id)} open={open === e.id} more={() => setOpen(open === e.id ? undefined : e.id)} /></Fragment>;
        })}
        {list.hasNextPage && <footer><Button variant="default" loading={list.isFetchingNextPage} onClick={() => list.fetchNextPage()}>Load {size} older</Button></footer>}
      </Panel>
    </>
  );
}
