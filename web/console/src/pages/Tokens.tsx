import { Button, Popover, Select, TextInput } from '@mantine/core';
import { useInfiniteQuery } from '@tanstack/react-query';
import { useState } from 'react';
import { useNavigate, useParams, useSearchParams } from 'react-router';
import { call, query, type Part, type Token } from '../api';
import { Icon } from '../icons';
import { useMe } from '../session';
import { Closed, Commit, Curl, Empty, Failed, GoRow, Lines, PageHead, Panel, Path, short, TypeLabel, When, Who } from '../ui';
import { showsLong, tokenTypes } from '../words';
import { CreateToken } from './CreateToken';
import { TokenDrawer } from './TokenDrawer';

const size = 50;
const brands: Record<string, string> = { 'american-express': 'Amex', 'diners-club': 'Diners Club', jcb: 'JCB', unionpay: 'UnionPay' };
const veil = (s: string) => s.replace(/X{2,}/g, (x) => '•'.repeat(Math.min(4, x.length)));

/** glance is what a row shows of a value: the mask, in the form that people know it by. */
function glance(t: Token): { text: string; side?: string } {
  if (t.data === undefined) return { text: 'hidden' };
  if (t.card) {
    const brand = brands[t.card.brand ?? ''] ?? t.card.brand?.replace(/^./, (c) => c.toUpperCase());
    const expiry = t.card.expiration_month && `${String(t.card.expiration_month).padStart(2, '0')}/${String(t.card.expiration_year).slice(2)}`;
    return { text: `•••• ${t.card.last4}`, side: [brand, expiry].filter(Boolean).join(' · ') };
  }
  if (t.bank) return { text: `•••• ${t.bank.account_number_last4 ?? ''}`, side: t.bank.routing_number };
  if (typeof t.data === 'string') return { text: veil(t.data) };
  return { text: typeof t.data === 'object' && t.data ? veil(Object.values(t.data).filter((v) => typeof v === 'string').slice(0, 2).join(', ')) : String(t.data) };
}

const examples: [string, string][] = [
  ['card-of-jane', 'the token with this id'], ['customer=Jane', 'metadata, compared as a whole'], ['last4:4242 AND brand:visa', 'cards, where the mask shows it'],
  ['metadata.order:1001', 'the same as order=1001'], ['type:bank AND created_at:[2030-01-01 TO *]', 'by type and time'], ['data:example.com', 'a search index of the token'],
];

/** Help explains what can be searched for. */
function Help({ use }: { use: (text: string) => void }) {
  return (
    <Popover width={420} shadow="md" trapFocus>
      <Popover.Target><Button variant="subtle" color="gray" className="quiet">Search help</Button></Popover.Target>
      <Popover.Dropdown aria-label="Search help"><b style={{ fontWeight: 600 }}>What can be searched for</b>
        <div className="stack" style={{ gap: 6, marginTop: 8 }}>{examples.map(([text, means]) => <div key={text} className="row"><button className="pill mono" onClick={() => use(text)}>{text}</button><span className="dim" style={{ fontSize: 12 }}>{means}</span></div>)}</div>
      </Popover.Dropdown>
    </Popover>
  );
}

/** request is the call of a search: a query has a colon, metadata an equals sign, and all else is an id. */
function request(find: string, type: string, container: string) {
  if (find.includes(':')) return { method: 'POST', path: '/v2/tokens/search?transform=mask', body: { query: [find, type && `type:${type}`, container && `container:"${container}"`].filter(Boolean).join(' AND '), size } };
  const at = find.indexOf('=');
  return { method: 'GET', path: `/v2/tokens${query({ size, transform: 'mask', type, container, ...(at > 0 ? { [`metadata[${find.slice(0, at).trim()}]`]: find.slice(at + 1).trim() } : { id: find.trim() }) })}` };
}

export default function Tokens() {
  const me = useMe();
  const { id } = useParams();
  const go = useNavigate();
  const [params, setParams] = useSearchParams();
  const type = params.get('type') ?? '', container = params.get('container') ?? '', find = params.get('find') ?? '';
  const [draft, setDraft] = useState(find), [place, setPlace] = useState(container), [creating, setCreating] = useState(params.has('new')), [filters, setFilters] = useState(false);
  const put = (k: string, v: string) => { const n = new URLSearchParams(params); v ? n.set(k, v) : n.delete(k); setParams(n); };
  const asked = request(find, type, container);
  const list = useInfiniteQuery({
    queryKey: ['tokens', asked], enabled: me.may('token:read'), initialPageParam: undefined as string | undefined, getNextPageParam: (p: Part<Token>) => p.pagination.next,
    queryFn: ({ pageParam }) => asked.body ? call<Part<Token>>('POST', asked.path, { ...asked.body, start: pageParam }) : call<Part<Token>>('GET', asked.path + (pageParam ? `&start=${encodeURIComponent(pageParam)}` : '')),
  });
  const rows = list.data?.pages.flatMap((p) => p.data);
  const filtered = type || container || find;
  const back = () => go({ pathname: '/tokens', search: params.toString() });
  const sees = me.sees === 'reveal' ? 'mask' : me.sees; // a list shows the mask at most
  if (!me.may('token:read')) return <><PageHead title="Tokens" about="Values that your systems do not have to hold." /><Panel label="Tokens"><Closed permission="token:read" /></Panel></>;
  return (
    <>
      <PageHead title="Tokens" about={<>As <b style={{ fontWeight: 500, color: 'var(--ink)' }}>{me.member.name || me.member.email}</b>, who {sees === 'none' ? 'may read them' : showsLong[sees]}. Looking is logged.</>}
        actions={<><Curl method={asked.method} path={asked.path} body={asked.body} />{me.may('token:create') && <Commit leftSection={<Icon name="plus" size={14} />} onClick={() => setCreating(true)}>New token</Commit>}</>} />
      <Panel label="Tokens">
        <div className="bar" role="search">
          <form className="grow" style={{ minWidth: 200, maxWidth: 420 }} onSubmit={(e) => { e.preventDefault(); put('find', draft.trim()); }}>
            <TextInput aria-label="Find tokens" placeholder="Id, customer=Maya Lindqvist, or a query" leftSection={<Icon name="search" size={14} />} value={draft} onChange={(e) => setDraft(e.currentTarget.value)} />
          </form>
          <Button className="only-narrow" variant="default" aria-expanded={filters} leftSection={<Icon name="filter" size={14} />} onClick={() => setFilters(!filters)}>Filter</Button>
          <div className={`row wrap filters ${filters ? 'open' : ''}`}>
            <Select aria-label="Type" placeholder="Any type" clearable clearButtonProps={{ 'aria-label': 'Any type' }} w={190} value={type || null} onChange={(v) => put('type', v ?? '')} data={Object.entries(tokenTypes).map(([value, t]) => ({ value, label: t.many }))} />
            <form onSubmit={(e) => { e.preventDefault(); put('container', place); }}><TextInput aria-label="Container" placeholder="Container, /pci/*" w={170} value={place} onChange={(e) => setPlace(e.currentTarget.value)} onBlur={() => place !== container && put('container', place)} /></form>
            <Help use={(text) => { setDraft(text); put('find', text); }} />
            {filtered && <Button variant="subtle" color="gray" className="quiet" onClick={() => { setDraft(''); setPlace(''); setParams({}); }}>Clear</Button>}
          </div>
        </div>
        {list.isError ? <div style={{ padding: 14 }}><Failed error={list.error} retry={() => list.refetch()} /></div> : list.isLoading ? <Lines n={8} /> : rows?.length ? (
          <div className="scroll">
            <table className="t">
              <thead><tr><th>Token</th><th className="wide">Type</th><th>Masked value</th><th className="wide">Containers</th><th className="wide">Metadata</th><th className="wide">Created by</th><th className="right wide">Created</th></tr></thead>
              <tbody>
                {rows.map((t) => { const g = glance(t); return (
                  <GoRow key={t.id} to={`/tokens/${encodeURIComponent(t.id)}?${params}`} on={t.id === id}>
                    <td style={{ maxWidth: 'min(250px, 40vw)' }}><div className="clip mono"><a href={`/console/tokens/${encodeURIComponent(t.id)}`} onClick={(e) => { e.preventDefault(); go({ pathname: `/tokens/${encodeURIComponent(t.id)}`, search: params.toString() }); }} style={{ color: 'var(--ink)' }}>{short(t.id)}</a></div></td>
                    <td className="wide"><TypeLabel type={t.type} /></td>
                    <td style={{ maxWidth: 'min(230px, 48vw)' }}><div className="clip"><span className="mono">{g.text}</span>{g.side && <span className="faint" style={{ marginLeft: 8, fontSize: 12 }}>{g.side}</span>}</div></td>
                    <td className="wide"><span className="row" style={{ gap: 4 }}><Path>{t.containers[0] ?? '–'}</Path>{t.containers.length > 1 && <span className="faint" title={t.containers.join(' ')}>+{t.containers.length - 1}</span>}</span></td>
                    <td className="wide" style={{ maxWidth: 190 }}><div className="clip">{Object.entries(t.metadata ?? {}).slice(0, 1).map(([a, b]) => <span key={a} title={Object.entries(t.metadata!).map((x) => x.join('=')).join(', ')}><span className="faint">{a} </span>{b}</span>)}{!t.metadata && <span className="faint">–</span>}</div></td>
                    <td className="wide"><Who id={t.created_by} system /></td>
                    <td className="right wide">{t.created_at && <When at={t.created_at} />}</td>
                  </GoRow>
                ); })}
              </tbody>
            </table>
          </div>
        ) : filtered ? <Empty icon="search" title="No token matches">Ids and metadata are compared as a whole. A query such as <span className="mono">last4:4242</span> finds cards by what their mask shows.</Empty> : (
          <Empty icon="token" title="No tokens yet" action={me.may('token:create') ? <Button variant="default" onClick={() => setCreating(true)}>Create the first token</Button> : undefined}>A token stands for a value: a card, an account, any JSON. Your systems hold the token, and the vault holds the value.</Empty>
        )}
        {list.hasNextPage && <footer><Button variant="default" loading={list.isFetchingNextPage} onClick={() => list.fetchNextPage()}>Load {size} more</Button></footer>}
      </Panel>
      {id && <TokenDrawer id={id} close={back} />}
      <CreateToken opened={creating} close={() => setCreating(false)} />
    </>
  );
}
