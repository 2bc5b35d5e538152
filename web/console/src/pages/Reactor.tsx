import { Button, PasswordInput, Select, Tabs, TextInput, Tooltip } from '@mantine/core';
import { useQuery, useQueryClient } from '@tanstack/react-query';
import { lazy, Suspense, useEffect, useState } from 'react';
import { useNavigate, useParams } from 'react-router';
import { call, isMissing, Problem, type Page, type Reactor, type Run } from '../api';
import { useApps, useOptional } from '../data';
import { Icon } from '../icons';
import { useMe } from '../session';
import { Commit, Curl, Danger, Empty, Exposure, Failed, Lines, Note, PageHead, Panel, Saved, Sheet, When, Who } from '../ui';
import { sight } from '../api';

const Code = lazy(() => import('../Code'));
const example = `{
  "card": "{{ token-id }}"
}`;

const Printed = ({ lines }: { lines: Run['console'] }) => lines.length ? <div className="console">{lines.map((l, i) => <div key={i} className={l.level}><span className="lv">{l.level}</span><span style={{ overflowWrap: 'anywhere' }}>{l.text}</span></div>)}</div> : <div className="dim" style={{ padding: '8px 12px' }}>It printed nothing.</div>;
const took = (r: Run) => (r.took_us < 1e6 ? `${Math.round(r.took_us / 1000)} ms` : `${(r.took_us / 1e6).toFixed(1)} s`);

/** faultOf finds the line that an error of the code names. */
function faultOf(e: unknown): { line: number; text: string } | undefined {
  const text = e instanceof Problem ? [e.detail, ...Object.values(e.errors ?? {}).flat()].join(' ') : '';
  const line = /line (\d+)/.exec(text)?.[1];
  return line ? { line: Number(line), text } : undefined;
}

interface Tried { ok: boolean; status: number; body: unknown; ms: number; lines?: Run['console'] }

/** Test runs the code of the editor without deploying it, or the deployed code where the server cannot. */
function Test({ reactor, code, app, dirty, failed }: { reactor: Reactor; code: string; app: string | null; dirty: boolean; failed: (e: unknown) => void }) {
  const me = useMe(), client = useQueryClient();
  const [args, setArgs] = useState(example), [result, setResult] = useState<Tried>(), [running, setRunning] = useState(false), [canTry, setCanTry] = useState(true);
  const may = me.may('token:use');
  const sees = sight(me.role, 'token:use');
  const run = async () => {
    setRunning(true);
    const began = performance.now();
    let out: Tried;
    try {
      const given = { args: JSON.parse(args) };
      let body: unknown;
      try {
        if (!canTry || !me.may('reactor:update')) throw new Problem(404, '', '', undefined, null);
        body = await call('POST', '/reactors/try', { ...given, code, reactor_id: reactor.id, ...(app ? { application: { id: app } } : {}) });
      } catch (e) {
        if (!isMissing(e)) throw e;
        setCanTry(false);
        body = await call('POST', `/reactors/${reactor.id}/react`, given);
      }
      const tried = body as { console?: Run['console']; run?: { console?: Run['console'] } };
      out = { ok: true, status: 200, body, ms: 0, lines: tried?.console ?? tried?.run?.console };
    } catch (e) {
      failed(e);
      out = e instanceof Problem ? { ok: false, status: e.status, body: { title: e.title, detail: e.detail, ...(e.errors ? { errors: e.errors } : {}) }, ms: 0 } : { ok: false, status: 0, body: { title: 'Arguments', detail: 'are not JSON: ' + (e as Error).message }, ms: 0 };
    }
    setResult({ ...out, ms: performance.now() - began });
    void client.invalidateQueries({ queryKey: ['runs', reactor.id] });
    setRunning(false);
  };
  return (
    <>
      <div style={{ padding: '10px 12px 6px' }} className="row"><b style={{ fontWeight: 500 }}>Arguments</b><span className="faint mono" style={{ fontSize: 11.5 }}>{'{{ token id }}'} becomes its value</span></div>
      <div style={{ borderTop: '1px solid var(--line)', borderBottom: '1px solid var(--line)' }}><Suspense fallback={<Lines n={3} />}><Code value={args} change={setArgs} language="json" label="Arguments" height="118px" /></Suspense></div>
      <div className="row wrap" style={{ padding: 12 }}>
        {may ? <span className="dim row grow" style={{ fontSize: 12, gap: 6, minWidth: 150 }}>as you, gets {sees !== 'none' && <Exposure of={sees} />}</span> : <span className="dim grow" style={{ fontSize: 12 }}>Your role may not use tokens, so it cannot run code.</span>}
        <Tooltip label={dirty && canTry ? 'Runs what is in the editor, for real. Nothing is deployed.' : 'Runs for real: it may call other services'}><Button variant="default" leftSection={<Icon name="play" size={13} />} loading={running} disabled={!may} onClick={run}>{dirty && !canTry ? 'Run deployed code' : 'Run'}</Button></Tooltip>
      </div>
      {result ? (
        <>
          <div className="row" style={{ padding: '8px 12px', borderTop: '1px solid var(--line)' }}><b style={{ fontWeight: 500 }}>Result</b><span className={`chip ${result.ok ? 'good' : 'bad'}`}>{result.status || 'not sent'}</span><span className="grow" /><span className="faint num" style={{ fontSize: 12 }}>{Math.round(result.ms)} ms</span></div>
          <pre className="out" tabIndex={0} aria-label="Result" style={{ borderTop: '1px solid var(--line)', maxHeight: 210, overflow: 'auto' }}>{JSON.stringify(result.body, null, 2)}</pre>
          {result.lines && <><div style={{ padding: '8px 12px', borderTop: '1px solid var(--line)', borderBottom: '1px solid var(--line)', fontWeight: 500 }}>Console</div><Printed lines={result.lines} /></>}
        </>
      ) : <div style={{ borderTop: '1px solid var(--line)', padding: 12 }}><Note icon="info">Code runs for real, with what your role shows of the tokens.</Note></div>}
    </>
  );
}

function Runs({ id }: { id: string }) {
  const [open, setOpen] = useState<string>();
  const list = useRuns(id).data?.data ?? [];
  return <div style={{ maxHeight: 560, overflow: 'auto' }} tabIndex={0} role="region" aria-label="Last runs">{list.length === 0 ? <Empty icon="play" title="No runs in the last hour">Each call of the reactor shows up here, with what its code printed.</Empty> : list.slice(0, 40).map((x) => (
    <div key={x.id} style={{ borderBottom: '1px solid var(--line)' }}><button className="bare row" aria-expanded={open === x.id} onClick={() => setOpen(open === x.id ? undefined : x.id)}><Icon name={x.failed ? 'x' : 'check'} size={14} style={{ color: x.failed ? 'var(--bad)' : 'var(--good)' }} /><When at={x.started_at} clock /><span className="grow clip dim mono" style={{ fontSize: 11.5 }}>{x.console.at(-1)?.text}</span><span className="num dim">{took(x)}</span></button>{open === x.id && <div style={{ background: 'var(--raised)', borderTop: '1px solid var(--line)' }}><Printed lines={x.console} /></div>}</div>
  ))}</div>;
}

interface Version { version: number; code?: string; created_at: string; created_by?: string; created_by_name?: string; actor_name?: string }

/** lineDiff compares two texts by their lines, by the longest common subsequence. */
function lineDiff(a: string[], b: string[]): [' ' | '+' | '-', string][] {
  const n = a.length, m = b.length, t = Array.from({ length: n + 1 }, () => new Uint16Array(m + 1));
  for (let i = n - 1; i >= 0; i--) for (let j = m - 1; j >= 0; j--) t[i]![j] = a[i] === b[j] ? t[i + 1]![j + 1]! + 1 : Math.max(t[i + 1]![j]!, t[i]![j + 1]!);
  const out: [' ' | '+' | '-', string][] = [];
  for (let i = 0, j = 0; i < n || j < m;) {
    if (i < n && j < m && a[i] === b[j]) { out.push([' ', a[i]!]); i++; j++; }
    else if (j < m && (i >= n || t[i]![j + 1]! >= t[i + 1]![j]!)) out.push(['+', b[j++]!]);
    else out.push(['-', a[i++]!]);
  }
  return out;
}

/** Versions lists the code that was deployed before, compares it and restores it. */
function Versions({ reactor, restored }: { reactor: Reactor; restored: () => void }) {
  const me = useMe(), client = useQueryClient();
  const path = `/reactors/${reactor.id}/versions`;
  const got = useOptional<{ data: Version[] } | Version[]>(path);
  const [open, setOpen] = useState<number>(), [error, setError] = useState<unknown>();
  const whole = useQuery({ queryKey: [path, open], enabled: open !== undefined, retry: false, queryFn: () => call<Version>('GET', `${path}/${open}`) });
  const list = Array.isArray(got.data) ? got.data : got.data?.data;
  const restore = async (n: number) => { setError(undefined); try { await call('POST', `${path}/${n}/restore`); await Promise.all([client.invalidateQueries({ queryKey: [path] }), client.invalidateQueries({ queryKey: ['reactor', reactor.id] })]); restored(); } catch (e) { setError(e); } };
  if (got.data === null) return <Empty icon="history" title="No versions">This server keeps the deployed code only.</Empty>;
  if (got.isError) return <div style={{ padding: 12 }}><Failed error={got.error} /></div>;
  if (!list) return <Lines n={3} />;
  return (
    <div tabIndex={0} role="region" aria-label="Versions" style={{ maxHeight: 560, overflow: 'auto' }}>
      {error !== undefined && <div style={{ padding: 12 }}><Failed error={error} /></div>}
      {list.length === 0 ? <Empty icon="history" title="No earlier versions" /> : list.map((v) => {
        const text = v.code ?? (open === v.version ? whole.data?.code : undefined);
        return (
          <div key={v.version} style={{ borderBottom: '1px solid var(--line)' }}>
            <div className="row" style={{ padding: '6px 12px' }}><button className="bare row grow" style={{ padding: '4px 0' }} aria-expanded={open === v.version} onClick={() => setOpen(open === v.version ? undefined : v.version)}><Icon name={open === v.version ? 'down' : 'right'} size={13} /><b style={{ fontWeight: 500 }}>Version {v.version}</b><When at={v.created_at} /><span className="dim clip">by <Who id={v.created_by} name={v.created_by_name ?? v.actor_name} system /></span></button>
              {me.may('reactor:update') && text !== reactor.code && <Button variant="default" size="compact-xs" onClick={() => restore(v.version)}>Restore</Button>}</div>
            {open === v.version && (text === undefined ? <Lines n={3} /> : <pre className="out diff" tabIndex={0} aria-label={`Version ${v.version} against the deployed code`}>{lineDiff(text.split('\n').slice(0, 2000), reactor.code.split('\n').slice(0, 2000)).map(([mark, line], i) => <div key={i} className={mark === '+' ? 'add' : mark === '-' ? 'del' : ''}>{mark} {line}</div>)}</pre>)}
          </div>
        );
      })}
    </div>
  );
}

const useRuns = (id: string) => useQuery({ queryKey: ['runs', id], queryFn: () => call<Page<Run>>('GET', `/reactors/${id}/runs?size=100`), refetchInterval: 15_000 });

/** Configuration lists the names of the settings of a reactor; their values are write-only here. */
function Configuration({ reactor, may }: { reactor: Reactor; may: boolean }) {
  const client = useQueryClient();
  const [adding, setAdding] = useState(false), [name, setName] = useState(''), [value, setValue] = useState('');
  const patch = async (configuration: Record<string, string | null>) => { await call('PATCH', `/reactors/${reactor.id}`, { configuration }); await client.invalidateQueries({ queryKey: ['reactor', reactor.id] }); };
  const close = () => { setAdding(false); setName(''); setValue(''); };
  return (
    <Panel title="Configuration" foot={may ? <Button variant="default" leftSection={<Icon name="plus" size={14} />} onClick={() => setAdding(true)}>Set a value</Button> : undefined}>
      {Object.keys(reactor.configuration).length ? <div className="list">{Object.keys(reactor.configuration).map((k) => <div key={k} className="row listrow"><span className="mono grow clip">{k}</span><span className="mono veil" title="Stored encrypted, not shown here">••••••••</span>{may && <Button variant="subtle" color="red" className="danger" size="compact-xs" aria-label={`Remove ${k}`} onClick={() => void patch({ [k]: null })}>Remove</Button>}</div>)}</div> : <div className="dim" style={{ padding: 14 }}>None. Code reads settings as <span className="mono">req.configuration</span>.</div>}
      <Sheet opened={adding} close={close} title="Set a value" action="Save" run={async () => { await patch({ [name.trim()]: value }); close(); }} ready={!!name.trim() && !!value}>
        <TextInput label="Name" placeholder="ENDPOINT" value={name} onChange={(e) => setName(e.currentTarget.value)} data-autofocus /><PasswordInput label="Value" autoComplete="off" value={value} onChange={(e) => setValue(e.currentTarget.value)} />
      </Sheet>
    </Panel>
  );
}

export default function ReactorPage() {
  const { id = '' } = useParams();
  const me = useMe(), client = useQueryClient(), go = useNavigate();
  const apps = useApps().data;
  const got = useQuery({ queryKey: ['reactor', id], queryFn: () => call<Reactor>('GET', `/reactors/${id}`) });
  const runs = useRuns(id);
  const [code, setCode] = useState<string>(), [app, setApp] = useState<string | null>(null), [error, setError] = useState<unknown>(), [fault, setFault] = useState<{ line: number; text: string }>(), [busy, setBusy] = useState(false), [saved, setSaved] = useState(false), [doomed, setDoomed] = useState(false);
  const r = got.data;
  useEffect(() => { if (r) { setCode(r.code); setApp(r.application?.id ?? null); } }, [r]);
  if (got.isError) return <Failed error={got.error} retry={() => got.refetch()} />;
  if (!r || code === undefined) return <Lines n={8} />;
  const dirty = code !== r.code || app !== (r.application?.id ?? null), may = me.may('reactor:update');
  const save = async () => {
    setBusy(true); setError(undefined); setFault(undefined); setSaved(false);
    try { await call('PATCH', `/reactors/${id}`, { code, application: app ? { id: app } : null }); setSaved(true); await client.invalidateQueries({ queryKey: ['reactor', id] }); void client.invalidateQueries({ queryKey: [`/reactors/${id}/versions`] }); }
    catch (e) { setError(e); setFault(faultOf(e)); } finally { setBusy(false); }
  };
  const list = runs.data?.data ?? [], failed = list.filter((x) => x.failed).length, sorted = [...list].sort((a, b) => a.took_us - b.took_us);
  return (
    <>
      <PageHead crumb={{ to: '/reactors', label: 'Reactors' }} title={r.name} about={list.length ? <span className="num">{list.length} runs in the last hour, {failed ? <span style={{ color: 'var(--bad)' }}>{failed} failed</span> : 'none failed'}, half of them within {took(sorted[Math.floor(sorted.length / 2)]!)}</span> : 'No runs in the last hour'}
        actions={<><Curl method="POST" path={`/reactors/${id}/react`} body={{ args: { card: '{{ token-id }}' } }} />{saved && !dirty && <Saved>Deployed</Saved>}{dirty && <span className="chip line">not deployed</span>}{dirty && <Button variant="subtle" color="gray" className="quiet" onClick={() => { setCode(r.code); setApp(r.application?.id ?? null); }}>Discard</Button>}{may && <Commit disabled={!dirty} loading={busy} onClick={save}>Deploy</Commit>}</>} />
      {error !== undefined && <div style={{ marginBottom: 12 }}><Failed error={error} /></div>}
      <div className="grid two reactor">
        <div className="stack" style={{ gap: 16 }}>
          <Panel title="Code" right={<span className="faint num" style={{ fontSize: 12 }}>{code.length.toLocaleString('en')} of 50,000 characters</span>} foot={<span className="row wrap" style={{ gap: 10 }}><span>Node.js 16, sandboxed, 10 seconds</span><span className="wide">Ctrl+Space completes, Escape then Tab leaves</span></span>}>
            <Suspense fallback={<Lines n={12} />}><Code value={code} change={may ? (v) => { setSaved(false); setCode(v); } : undefined} label="Code of the reactor" height="min(56vh, 560px)" fault={fault} /></Suspense>
          </Panel>
          <div className="grid two" style={{ gridTemplateColumns: '1fr 1fr' }}>
            <Panel title="Acts as" pad><Select aria-label="Acts as" disabled={!may} clearable clearButtonProps={{ 'aria-label': 'Nobody' }} placeholder="Nobody: no tokens but the arguments" value={app} onChange={setApp} data={(apps ?? []).filter((a) => a.type !== 'management').map((a) => ({ value: a.id, label: a.name }))} /><div className="dim" style={{ fontSize: 12, marginTop: 6 }}>Whose access <span className="mono">req.bt</span> has inside the code.</div>
              {me.may('reactor:delete') && <Button variant="subtle" color="red" className="danger" mt={10} ml={-10} leftSection={<Icon name="trash" size={14} />} onClick={() => setDoomed(true)}>Delete this reactor…</Button>}</Panel>
            <Configuration reactor={r} may={may} />
          </div>
        </div>
        <Panel label="Test and runs">
          <Tabs defaultValue="test" keepMounted={false} styles={{ list: { padding: '0 8px' }, tab: { padding: '12px 10px', fontSize: 13 } }}>
            <Tabs.List><Tabs.Tab value="test">Test run</Tabs.Tab><Tabs.Tab value="runs">Runs <span className="chip" style={{ marginLeft: 4 }}>{list.length}</span></Tabs.Tab><Tabs.Tab value="versions">Versions</Tabs.Tab></Tabs.List>
            <Tabs.Panel value="test"><Test reactor={r} code={code} app={app} dirty={dirty} failed={(e) => setFault(faultOf(e))} /></Tabs.Panel>
            <Tabs.Panel value="runs"><Runs id={id} /></Tabs.Panel>
            <Tabs.Panel value="versions"><Versions reactor={r} restored={() => setSaved(true)} /></Tabs.Panel>
          </Tabs>
        </Panel>
      </div>
      <Danger opened={doomed} close={() => setDoomed(false)} title={`Delete ${r.name}?`} name={r.name} action="Delete reactor" run={async () => { await call('DELETE', `/reactors/${id}`); await client.invalidateQueries({ queryKey: ['/reactors'] }); go('/reactors'); }}>Calls of this reactor fail at once. Its code and its configuration are gone. This cannot be undone.</Danger>
    </>
  );
}
