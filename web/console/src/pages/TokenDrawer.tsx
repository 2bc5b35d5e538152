import { Button, Drawer, SegmentedControl, Textarea, TextInput } from '@mantine/core';
import { useQueries, useQuery, useQueryClient } from '@tanstack/react-query';
import { useCallback, useEffect, useState, type FormEvent } from 'react';
import { Link } from 'react-router';
import { call, isMissing, part, query, type Holder, type LogEntry, type Page, type Part, type Token, type Transform } from '../api';
import { Icon } from '../icons';
import { useMe } from '../session';
import { ago, Copy, Curl, Danger, Empty, Entry, Exposure, Failed, Lines, Path, Sheet, TypeLabel, useNow, When, Who } from '../ui';
import { isRevealed, kind, tokenTypes } from '../words';
import { pairs } from './CreateToken';

const seconds = 30;
const labels: Record<string, string> = { number: 'Number', expiration_month: 'Expiry month', expiration_year: 'Expiry year', cvc: 'Security code', routing_number: 'Routing number', account_number: 'Account number' };

function Value({ data, clear }: { data: unknown; clear?: boolean }) {
  const lines: [string, unknown][] = data !== null && typeof data === 'object' && !Array.isArray(data) ? Object.entries(data) : [['Value', data]];
  const text = (v: unknown) => (typeof v === 'string' ? v : JSON.stringify(v));
  const group = (k: string, v: unknown) => (k === 'number' && clear ? text(v).replace(/(.{4})(?=.)/g, '$1 ') : clear ? text(v) : text(v).replace(/X{2,}/g, (x) => '•'.repeat(x.length)));
  return <>{lines.map(([k, v]) => <div className="line" key={k}><span>{labels[k] ?? k}</span><span className="mono">{group(k, v)}</span></div>)}</>;
}

/** useHidden calls hide when the window is left, and when the time is over. */
function useHidden(until: number | undefined, hide: () => void): number {
  const now = useNow(250);
  const left = until ? Math.max(0, until - now) : 0;
  useEffect(() => { if (until && left === 0) hide(); }, [until, left, hide]);
  useEffect(() => {
    const leave = () => document.hidden && hide();
    document.addEventListener('visibilitychange', leave); addEventListener('beforeprint', hide); addEventListener('pagehide', hide);
    return () => { document.removeEventListener('visibilitychange', leave); removeEventListener('beforeprint', hide); removeEventListener('pagehide', hide); };
  }, [hide]);
  return left;
}

// Reveal shows one value for thirty seconds. The value lives in this component: in no cache and no URL. It is gone when the
// window is left, and it is not printed.
function Reveal({ token }: { token: Token }) {
  const me = useMe(), client = useQueryClient();
  const [asking, setAsking] = useState(false), [why, setWhy] = useState(''), [error, setError] = useState<unknown>(), [busy, setBusy] = useState(false);
  const [shown, setShown] = useState<{ data: unknown; until: number }>();
  const hide = useCallback(() => setShown(undefined), []);
  const left = useHidden(shown?.until, hide);
  const submit = async (e: FormEvent) => {
    e.preventDefault();
    setBusy(true); setError(undefined);
    try {
      const got = await call<Token>('POST', `/tokens/${part(token.id)}/reveal`, { reason: why.trim() });
      if (document.hidden) return;
      setShown({ data: got.data, until: Date.now() + seconds * 1000 });
      setAsking(false); setWhy('');
      void client.invalidateQueries({ queryKey: ['history', token.id] });
    } catch (x) { setError(isMissing(x) ? new Error('This server does not reveal values to people.') : x); } finally { setBusy(false); }
  };
  return (
    <div className={`value ${shown ? 'clear' : ''}`} data-testid="value">
      {shown && <div className="countdown"><i style={{ width: `${(left / seconds / 1000) * 100}%` }} /></div>}
      <div className="row" style={{ padding: '8px 8px 8px 12px', borderBottom: '1px solid var(--line)' }}>
        <b style={{ fontWeight: 600 }}>{shown ? 'Value in clear' : token.data === undefined ? 'Value' : 'Masked value'}</b>
        {shown && <span className="num" role="timer" aria-live="off" style={{ color: 'var(--reveal)' }}>hides in {Math.ceil(left / 1000)} s</span>}
        <span className="grow" />
        {shown ? <Button variant="default" onClick={hide} leftSection={<Icon name="eyeOff" size={14} />}>Hide now</Button>
          : me.sees === 'reveal' && <Button variant="default" aria-expanded={asking} onClick={() => setAsking(!asking)} leftSection={<Icon name="eye" size={14} />}>Reveal…</Button>}
      </div>
      {asking && !shown && (
        <form onSubmit={submit} className="stack" style={{ padding: 12, background: 'var(--reveal-bg)', borderBottom: '1px solid var(--line)' }}>
          <TextInput label="Reason" placeholder="Ticket and why, e.g. INC-2231 chargeback" required withAsterisk={false} maxLength={200} autoComplete="off" value={why} onChange={(e) => setWhy(e.currentTarget.value)} autoFocus />
          {error !== undefined && <Failed error={error} />}
          <div className="row"><span style={{ color: 'var(--reveal)', fontSize: 12 }} className="grow">The value is shown for {seconds} seconds. Your name and your reason go into the audit log.</span>
            <Button type="submit" className="hot" loading={busy} disabled={why.trim().length < 3}>Reveal for {seconds} s</Button></div>
        </form>
      )}
      {shown ? <Value data={shown.data} clear /> : token.data === undefined ? <div className="line"><span>Hidden</span><span className="dim">Your role shows that the token exists, and no data.</span></div> : <Value data={token.data} />}
    </div>
  );
}

const order: Transform[] = ['reveal', 'mask', 'redact'];
const path = (permission: string, more: Record<string, string>) => `/access/who${query({ permission, ...more, size: 100 })}`;

/** useHolders reads who may do something to a token, from a server that knows tokens or by its containers. */
function useHolders(token: Token, permission: string) {
  const me = useMe();
  const whole = useQuery({ queryKey: ['who', permission, token.id], enabled: me.may('application:read'), retry: false, queryFn: () => call<Page<Holder>>('GET', path(permission, { token_id: token.id })) });
  const old = whole.isError;
  const each = useQueries({ queries: token.containers.map((c) => ({ queryKey: ['who', permission, c], enabled: old, queryFn: () => call<Page<Holder>>('GET', path(permission, { container: c })) })) });
  if (!old) return { error: undefined, holders: whole.data?.data };
  const failed = each.find((q) => q.isError), all = each.map((q) => q.data?.data);
  const holders = all.every(Boolean) ? all[0]?.flatMap((h) => {
    const same = all.map((l) => l!.find((x) => x.id === h.id));
    return same.some((x) => !x) ? [] : [{ ...h, transform: order[Math.max(...same.map((x) => order.indexOf(x!.transform as Transform)))]! }];
  }) : undefined;
  return { error: failed?.error, holders };
}

function WhoCan({ token }: { token: Token }) {
  const [permission, setPermission] = useState('token:read');
  const { error, holders } = useHolders(token, permission);
  const verb = permission === 'token:read' ? 'read' : permission === 'token:use' ? 'use' : 'delete';
  const sorted = holders && [...holders].sort((a, b) => order.indexOf(a.transform as Transform) - order.indexOf(b.transform as Transform));
  return (
    <section aria-label={`Who can ${verb} it`}>
      <div className="row" style={{ marginBottom: 8 }}><h3 className="h3 grow">Who can {verb} it</h3>
        <SegmentedControl aria-label="Permission" value={permission} onChange={setPermission} data={[{ value: 'token:read', label: 'Read' }, { value: 'token:use', label: 'Use' }, { value: 'token:delete', label: 'Delete' }]} /></div>
      <div className="panel list">
        {error ? <Failed error={error} /> : !sorted ? <Lines n={3} /> : sorted.length === 0 ? <Empty icon="lock" title="Nobody" /> : sorted.map((h) => (
          <div key={h.kind + h.id} className="row" style={{ padding: '7px 12px', borderBottom: '1px solid var(--line)' }}>
            <Icon name={h.kind === 'session' ? 'session' : h.kind === 'member' ? 'users' : 'app'} size={14} style={{ color: 'var(--faint)' }} />
            <span className="grow clip"><Link to={h.kind === 'application' ? `/applications/${h.id}` : h.kind === 'member' ? '/members' : '/sessions'} style={{ color: 'var(--ink)', fontWeight: 500 }}>{h.name ?? h.id}</Link>{h.kind === 'session' && <span className="dim"> in a session</span>}{h.application_type && h.kind === 'application' && <span className="faint"> {kind[h.application_type]?.label.toLowerCase()}</span>}</span>
            {h.expires_at && <span className="faint" style={{ fontSize: 12 }}>expires {ago(h.expires_at)}</span>}
            {permission !== 'token:delete' && h.transform && <Exposure of={h.transform as Transform} />}
          </div>
        ))}
      </div>
    </section>
  );
}

function History({ token }: { token: Token }) {
  const me = useMe();
  const [mine, setMine] = useState(false);
  const log = useQuery({ queryKey: ['history', token.id], queryFn: () => call<Part<LogEntry>>('GET', `/v2/logs${query({ entity_id: token.id, size: 50 })}`) });
  const own = (e: LogEntry) => e.operation === 'read' && e.actor_id === me.member.id && !isRevealed(e);
  const hidden = log.data?.data.filter(own).length ?? 0;
  const entries = log.data?.data.filter((e) => mine || !own(e));
  return (
    <section aria-label="History">
      <div className="row" style={{ marginBottom: 8 }}><h3 className="h3 grow">History</h3>{hidden > 0 && <Button variant="subtle" color="gray" className="quiet" size="compact-xs" onClick={() => setMine(!mine)}>{mine ? 'Hide' : 'Show'} {hidden} {hidden === 1 ? 'look' : 'looks'} of yours</Button>}</div>
      <div className="panel">{log.isError ? <Failed error={log.error} /> : !entries ? <Lines n={3} /> : entries.length ? entries.slice(0, 20).map((e) => <Entry key={e.id} e={e} brief />) : <Empty icon="history" title="Nothing but your own looks" />}
        {entries && entries.length > 20 && <footer><Link to={`/log?entity=${encodeURIComponent(token.id)}&since=all`}>All entries</Link></footer>}</div>
    </section>
  );
}

/** Edit changes what is not a value: metadata, containers, expiry. */
function Edit({ token, opened, close }: { token: Token; opened: boolean; close: () => void }) {
  const client = useQueryClient();
  const [metadata, setMetadata] = useState(''), [containers, setContainers] = useState(''), [expires, setExpires] = useState('');
  useEffect(() => { if (opened) { setMetadata(Object.entries(token.metadata ?? {}).map((x) => x.join('=')).join('\n')); setContainers(token.containers.join(' ')); setExpires(token.expires_at?.slice(0, 16) ?? ''); } }, [opened, token]);
  const run = async () => {
    const now = pairs(metadata) ?? {}, gone = Object.keys(token.metadata ?? {}).filter((k) => !(k in now));
    const list = containers.split(/[\s,]+/).filter(Boolean);
    await call('PATCH', `/tokens/${part(token.id)}`, {
      metadata: { ...now, ...Object.fromEntries(gone.map((k) => [k, null])) },
      ...(list.join() === token.containers.join() ? {} : { containers: list }),
      ...(expires === (token.expires_at?.slice(0, 16) ?? '') ? {} : { expires_at: expires ? `${expires}:00Z` : null }),
    });
    await Promise.all([['token', token.id], ['tokens'], ['history', token.id]].map((queryKey) => client.invalidateQueries({ queryKey })));
    close();
  };
  return (
    <Sheet opened={opened} close={close} title="Change token" action="Save" run={run}>
      <Textarea label="Metadata" description="One name=value per line" autosize minRows={3} value={metadata} onChange={(e) => setMetadata(e.currentTarget.value)} data-autofocus />
      <TextInput label="Containers" description="Removing one takes a role that may reveal the token" value={containers} onChange={(e) => setContainers(e.currentTarget.value)} styles={{ input: { fontFamily: 'var(--mantine-font-family-monospace)' } }} />
      <TextInput label="Expires (UTC)" type="datetime-local" description="Left empty, never" value={expires} onChange={(e) => setExpires(e.currentTarget.value)} />
    </Sheet>
  );
}

export function TokenDrawer({ id, close }: { id: string; close: () => void }) {
  const me = useMe(), client = useQueryClient();
  const [editing, setEditing] = useState(false), [doomed, setDoomed] = useState(false);
  const url = `/tokens/${part(id)}`;
  const got = useQuery({ queryKey: ['token', id], queryFn: () => call<Token>('GET', `${url}?transform=mask`), staleTime: 60_000 });
  const t = got.data;
  const destroy = async () => { await call('DELETE', url); client.removeQueries({ queryKey: ['token', id] }); await client.invalidateQueries({ queryKey: ['tokens'] }); close(); };
  return (
    <Drawer opened onClose={close} position="right" size={600} padding={20} title={<span className="row"><b className="mono" style={{ fontSize: 14, overflowWrap: 'anywhere' }}>{id}</b><Copy text={id} label="Copy the token id" /></span>} closeButtonProps={{ 'aria-label': 'Close' }} styles={{ header: { borderBottom: '1px solid var(--line)', background: 'var(--panel)' }, content: { background: 'var(--panel)' }, body: { paddingTop: 16 } }}>
      {got.isError ? <Failed error={got.error} retry={() => got.refetch()} /> : !t ? <Lines /> : (
        <div className="stack" style={{ gap: 20 }}>
          <Reveal key={id} token={t} />
          <section aria-label="About the token">
            <dl className="dl">
              <dt>Type</dt><dd><TypeLabel type={t.type} />{!tokenTypes[t.type] && t.type}</dd>
              <dt>Containers</dt><dd className="row wrap" style={{ gap: 4 }}>{t.containers.map((c) => <Path key={c}>{c}</Path>)}</dd>
              {t.created_at && <><dt>Created</dt><dd><When at={t.created_at} /> by <Who id={t.created_by} system /></dd></>}
              {t.modified_at && <><dt>Changed</dt><dd><When at={t.modified_at} /> by <Who id={t.modified_by} system /></dd></>}
              <dt>Expires</dt><dd>{t.expires_at ? <When at={t.expires_at} /> : <span className="dim">never</span>}</dd>
              {t.fingerprint && <><dt>Fingerprint</dt><dd className="row" style={{ gap: 4 }}><span className="mono clip dim">{t.fingerprint}</span><Copy text={t.fingerprint} label="Copy the fingerprint" /></dd></>}
            </dl>
          </section>
          <section aria-label="Metadata">
            <h3 className="h3" style={{ marginBottom: 8 }}>Metadata</h3>
            {t.metadata && Object.keys(t.metadata).length ? <div className="value" style={{ background: 'var(--panel)' }}>{Object.entries(t.metadata).map(([k, v]) => <div className="line" key={k}><span className="mono">{k}</span><span>{v}</span></div>)}</div> : <span className="dim">None</span>}
          </section>
          {me.may('application:read') && <WhoCan token={t} />}
          {me.may('log:read') && <History token={t} />}
          <div className="row wrap">
            {me.may('token:update') && <Button variant="default" leftSection={<Icon name="pencil" size={14} />} onClick={() => setEditing(true)}>Change…</Button>}
            <Curl path={`${url}?transform=mask`} />
            <span className="grow" />
            {me.may('token:delete') && <Button variant="subtle" color="red" className="danger" leftSection={<Icon name="trash" size={14} />} onClick={() => setDoomed(true)}>Delete this token…</Button>}
          </div>
          <Edit token={t} opened={editing} close={() => setEditing(false)} />
          <Danger opened={doomed} close={() => setDoomed(false)} title="Delete this token?" name={id} action="Delete token" run={destroy}>The value is destroyed. Requests that name the token fail from then on. This cannot be undone.</Danger>
        </div>
      )}
    </Drawer>
  );
}
