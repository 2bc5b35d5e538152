import { Skeleton } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { useMemo, useState, type ReactNode } from 'react';
import { Link } from 'react-router';
import { call, query, type Application, type LogEntry, type Part, type Proxy, type Usage } from '../api';
import { Bars } from '../Bars';
import { useApps, useOptional, useProxies, useReady } from '../data';
import { Icon, type IconName } from '../icons';
import { useMe } from '../session';
import { ago, Curl, Empty, Entry, Failed, Lines, PageHead, Panel, useNow } from '../ui';
import { fold, isToken, tokenTypes } from '../words';
import type { IntegrityState } from './Integrity';

const colors = ['var(--c-read)', 'var(--c-use)', 'var(--c-write)', 'var(--c-denied)'];
const names = ['Read', 'Used', 'Changed', 'Refused'];
const hues = ['#3a5ce0', '#5aa58a', '#e0a13c', '#9b7bd4', '#6b7686', '#c76d8e'];
const minutes = 45;

interface Care { level: string; title: string; why: string; to: string }
interface Finding { kind: string; severity: string; detail: string; entity_type: string; entity_id: string; name?: string }
interface Bucket { at: string; reads: unknown; uses: number; changes: number; refusals: number }

const sum = (v: unknown): number => (typeof v === 'number' ? v : v && typeof v === 'object' ? Object.values(v).reduce((s: number, x) => s + sum(x), 0) : 0);
/** counts makes reads, uses, changes and refusals of a bucket of the report. */
const counts = (b: Bucket): number[] => [sum(b.reads), sum(b.uses), sum(b.changes), sum(b.refusals)];
const kindOf = (e: LogEntry) => (e.outcome === 'denied' ? 3 : e.operation === 'read' ? 0 : e.operation === 'use' ? 1 : 2);

/** useActivity reads the counters of the server; where it has none, it counts the newest entries. */
function useActivity(now: number, entries: LogEntry[] | undefined) {
  const me = useMe();
  const since = useMemo(() => new Date(Math.floor(Date.now() / 60_000) * 60_000 - (minutes - 1) * 60_000).toISOString(), [Math.floor(now / 60_000)]);
  const report = useOptional<{ data: Bucket[] }>(`/reports/activity${query({ bucket: 'minute', by: 'nothing', start_date: since })}`, me.may('report:read'));
  const first = Math.floor(now / 60_000) - minutes + 1;
  const data = Array.from({ length: minutes }, (_, i) => ({ at: (first + i) * 60_000, parts: [0, 0, 0, 0] }));
  const at = (time: string) => data[Math.floor(Date.parse(time) / 60_000) - first];
  const rows = report.data?.data;
  if (rows) for (const b of rows) { const slot = at(b.at); if (slot) slot.parts = slot.parts.map((n, i) => n + counts(b)[i]!); }
  else for (const e of entries ?? []) { const slot = at(e.created_at); if (slot) slot.parts[kindOf(e)]!++; }
  const known = rows !== undefined || (!report.isLoading && entries !== undefined);
  return { data, known, counted: rows !== undefined, error: report.error, sums: data.reduce((s, b) => s.map((n, i) => n + b.parts[i]!), [0, 0, 0, 0]) };
}

const where: Record<string, string> = { application: '/applications/', key: '/keys', proxy: '/proxies/', reactor: '/reactors/', webhook: '/webhooks/', log: '/log', tenant: '/settings' };
const found: Record<string, (name: string) => string> = {
  broad_rule: (n) => `${n} can read every value`, open_proxy: (n) => `${n} is open to anyone with its key`, old_key: (n) => `${n} has an old key`, unused_key: (n) => `${n} has a key that nobody uses`,
  expiring_application: (n) => `${n} expires soon`, log_unverified: () => 'The log was not verified', log_changed: () => 'The log is not what was signed',
};
const placeOf = (f: Finding) => { const base = where[f.entity_type]; return !base ? '/log' : base.endsWith('/') ? (f.entity_id ? base + f.entity_id : base.slice(0, -1)) : base; };

/** useCare is what needs attention: what the server reports, or what the lists show. */
function useCare(apps: Application[] | undefined, proxies: Proxy[] | undefined, now: number): Care[] {
  const me = useMe();
  const report = useOptional<Finding[]>('/reports/attention', me.may('report:read'), 60_000);
  return useMemo(() => {
    if (report.data) return report.data.map((f) => ({ level: f.severity, title: found[f.kind]?.(f.name ?? 'Something') ?? f.kind.replaceAll('_', ' '), why: f.detail.replace(/^./, (c) => c.toUpperCase()), to: placeOf(f) }));
    const out: Care[] = [];
    for (const p of proxies ?? []) if (!p.require_auth && !p.application_id) out.push({ level: 'bad', title: `${p.name} gives any token away`, why: 'Anyone with its key can send any value to its destination. Name an application, or require an API key.', to: `/proxies/${p.id}` });
    for (const a of apps ?? []) {
      const left = a.expires_at ? Date.parse(a.expires_at) - now : Infinity;
      if (left < 0) out.push({ level: 'info', title: `${a.name} has expired`, why: `${ago(a.expires_at!, now)}. Delete it if nobody misses it.`, to: `/applications/${a.id}` });
      else if (left < 7 * 86400e3) out.push({ level: 'warn', title: `${a.name} expires ${ago(a.expires_at!, now)}`, why: 'Its keys stop working then.', to: `/applications/${a.id}` });
      if (a.keys?.length === 3) out.push({ level: 'info', title: `${a.name} has three keys`, why: 'A rotation was not finished: revoke those that are not used.', to: `/applications/${a.id}` });
      if (a.type === 'private' && a.rules.some((r) => r.container === '/' && r.transform === 'reveal' && r.permissions.includes('token:read'))) out.push({ level: 'warn', title: `${a.name} can read every value`, why: 'A rule shows everything under / in clear.', to: `/applications/${a.id}` });
    }
    return out.sort((a, b) => ['bad', 'warn', 'info'].indexOf(a.level) - ['bad', 'warn', 'info'].indexOf(b.level));
  }, [report.data, apps, proxies, now]);
}

/** Start leads a new tenant to its first token, rule and proxy. */
function Start({ tokens, ruled, proxies }: { tokens?: number; ruled?: boolean; proxies?: number }) {
  const me = useMe();
  const steps: [boolean, string, ReactNode, string, string][] = [
    [!!tokens, 'Create a token', 'A test card will do: 4242 4242 4242 4242.', '/tokens?new', 'token:create'],
    [!!ruled, 'Give an application access', 'With a key of its own, and rules for what it sees.', '/applications?new', 'application:create'],
    [!!proxies, 'Send a value somewhere', 'A proxy puts values into the requests that your server makes.', '/proxies?new', 'proxy:create'],
  ];
  if (tokens === undefined || steps.every(([done]) => done)) return null;
  return (
    <div style={{ marginBottom: 16 }}><Panel title="First steps" label="First steps">
      {steps.filter((s) => me.may(s[4])).map(([done, title, why, to]) => <Link key={title} to={to} className="attend"><Icon name={done ? 'check' : 'arrow'} size={15} style={{ color: done ? 'var(--good)' : 'var(--faint)' }} /><div className="grow"><b>{title}</b><span>{why}</span></div><Icon name="right" size={14} /></Link>)}
    </Panel></div>
  );
}

export default function Overview() {
  const me = useMe();
  const now = useNow(30_000), [all, setAll] = useState(false);
  const usage = useQuery({ queryKey: ['usage'], enabled: me.may('report:read'), queryFn: () => call<Usage>('GET', '/tenants/self/reports/usage'), refetchInterval: 60_000 });
  const recent = useQuery({ queryKey: ['recent'], enabled: me.may('log:read'), queryFn: () => call<Part<LogEntry>>('GET', '/v2/logs?size=100'), refetchInterval: 30_000 });
  const apps = useApps().data, proxies = useProxies().data, ready = useReady();
  const integrity = useOptional<IntegrityState>('/logs/integrity', me.may('log:read'), 60_000).data;
  const entries = recent.data?.data.filter((e) => e.actor_id !== me.member.id || e.operation !== 'read' || e.transform === 'reveal');
  const activity = useActivity(now, entries);
  const care = useCare(apps, proxies, now);
  const types = Object.entries(usage.data?.token_report.metrics_by_type ?? {}).sort((a, b) => b[1].count - a[1].count);
  const total = usage.data?.total_tokens;
  const s = activity.known ? activity.sums : undefined; // what is not known yet is a dash: a 0 would be a claim
  const stats: [string, number | undefined, ReactNode][] = [
    ['Tokens', total, types.length ? `of ${types.length} ${types.length === 1 ? 'type' : 'types'}` : ''], ['Values used', s?.[1], 'by reactors and proxies'], ['Reads', s?.[0], 'by applications and people'],
    ['Refused', s?.[3], !s ? '' : s[3] ? <Link to="/log?outcome=denied">look at who and why</Link> : 'nobody was refused'],
  ];
  const last = integrity?.last_verification;
  const latest = entries && fold(entries.filter((e) => isToken(e.entity_type) || (e.operation !== 'read' && e.entity_type !== 'session'))).slice(0, 10);
  return (
    <>
      <PageHead title="Overview" about={`${me.tenant?.name ? me.tenant.name + ', the' : 'The'} last ${minutes} minutes${activity.known && !activity.counted ? ', from the newest 100 entries of the log' : ''}`} actions={<Curl path="/reports/activity?bucket=minute" />} />
      <Start tokens={total} ruled={apps?.some((a) => a.rules.length > 0)} proxies={proxies?.length} />
      <div className="panel stats" style={{ marginBottom: 16 }}>
        {stats.map(([l, v, under]) => <div className="stat" key={l}><div className="l">{l}</div><div className="v" style={l === 'Refused' && v ? { color: 'var(--bad)' } : undefined}>{v === undefined ? <><span className="faint" aria-hidden>–</span><span className="sr">not known</span></> : v.toLocaleString('en')}</div><div className="s">{under}</div></div>)}
      </div>
      <div className="grid two overview">
        <div className="stack" style={{ gap: 16 }}>
          <Panel title="Activity" right={<div className="legend">{names.map((n, i) => <span key={n}><i style={{ background: colors[i] }} />{n}</span>)}</div>}>
            <div style={{ padding: '18px 14px 12px' }}>
              {activity.error ? <Failed error={activity.error} /> : !activity.known ? <Skeleton height={150} mb={20} /> : <Bars data={activity.data} colors={colors} names={names} label={`Activity by minute: ${activity.sums[0]} reads, ${activity.sums[1]} uses, ${activity.sums[2]} changes and ${activity.sums[3]} refusals in the last ${minutes} minutes`} />}
            </div>
          </Panel>
          {me.may('log:read') && <Panel title="Latest" right={<Link to="/log">Audit log</Link>}>
            {recent.isError ? <div style={{ padding: 14 }}><Failed error={recent.error} retry={() => recent.refetch()} /></div> : !latest ? <Lines /> : latest.length ? latest.map((e) => <Entry key={e.id} e={e} />) : <Empty icon="log" title="Nothing yet">What people and applications do with tokens shows up here.</Empty>}
          </Panel>}
        </div>
        <div className="stack" style={{ gap: 16 }}>
          <Panel title="To attend to" right={care.length ? <span className="chip">{care.length}</span> : undefined}>
            {care.length ? care.slice(0, all ? 99 : 6).map((c, i) => (
              <Link key={i} to={c.to} className="attend"><Icon name={(c.level === 'info' ? 'info' : 'alert') as IconName} size={15} style={{ color: ['bad', 'high', 'critical'].includes(c.level) ? 'var(--bad)' : c.level === 'info' || c.level === 'low' ? 'var(--faint)' : 'var(--warn)' }} /><div className="grow"><b>{c.title}</b><span>{c.why}</span></div><Icon name="right" size={14} /></Link>
            )) : <Empty icon="check" title="Nothing to attend to" />}
            {!all && care.length > 6 && <footer><button className="pill" onClick={() => setAll(true)}>{care.length - 6} more</button></footer>}
          </Panel>
          {me.may('report:read') && <Panel title="Tokens by type" right={<Link to="/tokens">All tokens</Link>} pad>
            {usage.isError ? <Failed error={usage.error} /> : types.length === 0 ? <span className="dim">{usage.data ? 'No tokens yet' : '–'}</span> : (
              <>
                <div className="split" aria-hidden>{types.map(([t, c], i) => <i key={t} style={{ flex: c.count, background: hues[i % hues.length] }} />)}</div>
                <div style={{ marginTop: 10 }}>{types.map(([t, c], i) => <div key={t} className="row" style={{ height: 26 }}><i style={{ width: 8, height: 8, borderRadius: 2, background: hues[i % hues.length] }} /><Link to={`/tokens?type=${t}`} style={{ color: 'inherit' }} className="grow">{tokenTypes[t]?.many ?? t}</Link><span className="num">{c.count.toLocaleString('en')}</span><span className="num faint" style={{ width: 46, textAlign: 'right', whiteSpace: 'nowrap' }}>{Math.round((100 * c.count) / (total || 1))} %</span></div>)}</div>
              </>
            )}
          </Panel>}
          <Panel title="Health" pad>
            <dl className="dl">
              <dt>Service</dt><dd className="row" style={{ gap: 7 }}><i className="dot" style={{ background: ready.data ? 'var(--good)' : ready.isLoading ? 'var(--faint)' : 'var(--bad)' }} />{ready.data ? 'Ready' : ready.isLoading ? '…' : 'Not ready'}</dd>
              <dt>Audit log</dt><dd className="row" style={{ gap: 7 }}>{integrity ? <><i className="dot" style={{ background: last && !last.clean ? 'var(--bad)' : last ? 'var(--good)' : 'var(--faint)' }} />{last ? `${last.clean ? 'verified' : 'changes found'} ${ago(last.at, now)}` : 'signed, not verified yet'}</> : '–'}</dd>
            </dl>
          </Panel>
        </div>
      </div>
    </>
  );
}
