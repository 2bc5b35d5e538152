import { Button, Select, TextInput } from '@mantine/core';
import { useInfiniteQuery } from '@tanstack/react-query';
import { useMemo, useState } from 'react';
import { useSearchParams } from 'react-router';
import { call, isMissing, query, type Part } from '../api';
import { Icon } from '../icons';
import { useMe } from '../session';
import { Closed, Curl, Empty, Failed, Lines, NotYet, PageHead, Panel, Path, short, When, Who } from '../ui';

interface Event { id: string; type: string; entity_type: string; entity_id: string; containers?: string[]; actor_id?: string; actor_type: string; created_at: string }

export default function Events() {
  const me = useMe();
  const [params, setParams] = useSearchParams();
  const type = params.get('type') ?? '';
  const [draft, setDraft] = useState(type);
  // The list begins with the oldest event, so the page asks for those since yesterday, a week or all.
  const days = Number(params.get('days') ?? 1);
  const since = useMemo(() => (days ? new Date(Date.now() - days * 86400e3).toISOString() : ''), [days]);
  const path = `/events${query({ size: 100, type, since })}`;
  const list = useInfiniteQuery({
    queryKey: ['events', path], enabled: me.may('event:read'), retry: false, initialPageParam: undefined as string | undefined, getNextPageParam: (p: Part<Event>) => (p.data.length ? p.pagination.next : undefined),
    queryFn: ({ pageParam }) => call<Part<Event>>('GET', path + (pageParam ? `&start=${encodeURIComponent(pageParam)}` : '')),
  });
  const rows = list.data?.pages.flatMap((p) => p.data);
  return (
    <>
      <PageHead title="Events" about="What changed, kept for 30 days. Webhooks send the same events; they carry ids, never values." actions={<Curl path={path} />} />
      <Panel label="Events">
        {!me.may('event:read') ? <Closed permission="event:read" /> : list.isError && isMissing(list.error) ? <NotYet what="events" /> : (
          <>
            <div className="bar" role="search"><form className="grow" style={{ maxWidth: 320 }} onSubmit={(e) => { e.preventDefault(); setParams({ ...(draft.trim() ? { type: draft.trim() } : {}), days: String(days) }); }}><TextInput aria-label="Type of event" placeholder="token.created, or token.*" leftSection={<Icon name="search" size={14} />} value={draft} onChange={(e) => setDraft(e.currentTarget.value)} /></form><Select aria-label="Since" allowDeselect={false} w={150} value={String(days)} onChange={(v) => setParams({ ...(type ? { type } : {}), days: v ?? '1' })} data={[{ value: '1', label: 'Last 24 hours' }, { value: '7', label: 'Last 7 days' }, { value: '0', label: 'Last 30 days' }]} /></div>
            {list.isError ? <div style={{ padding: 14 }}><Failed error={list.error} retry={() => list.refetch()} /></div> : !rows ? <Lines n={8} /> : rows.length === 0 ? <Empty icon="radio" title={type ? 'No such events' : 'No events yet'}>Changes of tokens, applications, reactors, proxies and settings show up here.</Empty> : (
              <div className="scroll"><table className="t"><thead><tr><th>Event</th><th>About</th><th className="wide">Containers</th><th className="wide">By</th><th className="right">When</th></tr></thead><tbody>{rows.map((e) => { return <tr key={e.id}><td className="mono">{e.type}</td><td><Who id={e.entity_id} name={short(e.entity_id)} /></td><td className="wide">{e.containers?.length ? e.containers.map((c) => <Path key={c}>{c}</Path>) : <span className="faint">–</span>}</td><td className="wide"><Who id={e.actor_id} system /></td><td className="right"><When at={e.created_at} /></td></tr>; })}</tbody></table></div>
            )}
            {list.hasNextPage && <footer><Button variant="default" loading={list.isFetchingNextPage} onClick={() => list.fetchNextPage()}>Load 100 more</Button></footer>}
          </>
        )}
      </Panel>
    </>
  );
}
