import { Button, Select, TextInput } from '@mantine/core';
import { useDebouncedValue } from '@mantine/hooks';
import { useQuery, useQueryClient } from '@tanstack/react-query';
import { lazy, Suspense, useEffect, useState, type ReactNode } from 'react';
import { Link, useNavigate, useParams } from 'react-router';
import { call, type Page, type Preview, type Proxy, type Token, type Transform } from '../api';
import { useApps } from '../data';
import { Icon } from '../icons';
import { useMe } from '../session';
import { Commit, Copy, Curl, Danger, Exposure, Failed, Lines, Note, PageHead, Panel, Path, Saved, When, Who } from '../ui';
import { thing } from '../words';
import { ProxyForm } from './Proxies';

const Code = lazy(() => import('../Code'));
const sample = (id: string) => `{
  "amount": 1999,
  "currency": "usd",
  "number": "{{ ${id} | json: '$.number' }}",
  "exp_month": "{{ ${id} | json: '$.expiration_month' }}",
  "exp_year": "{{ ${id} | json: '$.expiration_year' }}"
}`;
const plain = `{
  "amount": 1999,
  "currency": "usd"
}`;

// pretty indents a JSON body and marks what stands where expressions stood.
function pretty(body: string | undefined, sent: string): ReactNode {
  if (!body) return <span className="dim">no body</span>;
  let now: any, was: any;
  try { now = JSON.parse(body); was = JSON.parse(sent); } catch { return body; }
  const walk = (n: any, w: any, pad: string): ReactNode => {
    if (n && typeof n === 'object' && !Array.isArray(n)) { const ks = Object.keys(n); return <>{'{\n'}{ks.map((k, i) => <span key={k}>{pad + '  '}<span style={{ color: 'var(--k2)' }}>{JSON.stringify(k)}</span>: {walk(n[k], w?.[k], pad + '  ')}{i < ks.length - 1 ? ',' : ''}{'\n'}</span>)}{pad + '}'}</>; }
    const put = typeof w === 'string' && w.includes('{{');
    return put ? <mark className="v">{JSON.stringify(n)}</mark> : <>{JSON.stringify(n)}</>;
  };
  return walk(now, was, '');
}

/** Transforms edits the code that changes requests and responses on their way. */
function Transforms({ proxy, may }: { proxy: Proxy; may: boolean }) {
  const client = useQueryClient();
  const [request, setRequest] = useState(''), [response, setResponse] = useState(''), [error, setError] = useState<unknown>(), [busy, setBusy] = useState(false), [saved, setSaved] = useState(false);
  useEffect(() => { setRequest(proxy.request_transform?.code ?? ''); setResponse(proxy.response_transform?.code ?? ''); }, [proxy]);
  const dirty = request !== (proxy.request_transform?.code ?? '') || response !== (proxy.response_transform?.code ?? '');
  const save = async () => {
    setBusy(true); setError(undefined);
    const side = (code: string) => (code.trim() ? { code } : null);
    try { await call('PATCH', `/proxies/${proxy.id}`, { request_transform: side(request), response_transform: side(response) }); setSaved(true); await client.invalidateQueries({ queryKey: ['proxy', proxy.id] }); } catch (e) { setError(e); } finally { setBusy(false); }
  };
  return (
    <div style={{ marginTop: 16 }}><Panel title="Transforms" right={<span className="row">{saved && !dirty && <Saved />}{may && <Commit disabled={!dirty} loading={busy} onClick={save}>Save code</Commit>}</span>} foot={<span>Code runs in the sandbox with the values in place. Empty means that nothing is changed.</span>}>
      {error !== undefined && <div style={{ padding: 12 }}><Failed error={error} /></div>}
      <div className="grid two" style={{ gridTemplateColumns: 'minmax(0, 1fr) minmax(0, 1fr)', gap: 0 }}>
        {([['Changes the request', request, setRequest], ['Changes the response', response, setResponse]] as const).map(([label, value, set]) => <div key={label} style={{ borderRight: '1px solid var(--line)' }}><div className="dim" style={{ padding: '8px 14px', fontSize: 12, borderBottom: '1px solid var(--line)' }}>{label}</div><Suspense fallback={<Lines n={4} />}><Code value={value} change={may ? (v) => { setSaved(false); set(v); } : undefined} label={label} height="180px" /></Suspense></div>)}
      </div>
    </Panel></div>
  );
}

export default function ProxyPage() {
  const { id } = useParams();
  const me = useMe(), client = useQueryClient(), go = useNavigate();
  const apps = useApps().data;
  const card = useQuery({ queryKey: ['sample'], enabled: me.may('token:read'), retry: false, staleTime: Infinity, queryFn: async () => (await call<Page<Token>>('GET', '/v2/tokens?type=card&size=1&transform=redact')).data[0]?.id ?? '' });
  const [editing, setEditing] = useState(false), [doomed, setDoomed] = useState(false), [rotating, setRotating] = useState(false);
  const got = useQuery({ queryKey: ['proxy', id], queryFn: () => call<Proxy>('GET', `/proxies/${id}`) });
  const p = got.data;
  const [as, setAs] = useState<string>(), [method, setMethod] = useState('POST'), [path, setPath] = useState('/charges'), [typed, setBody] = useState<string>();
  const body = typed ?? (card.data ? sample(card.data) : plain);
  useEffect(() => { if (p && as === undefined && apps) setAs(p.application_id ?? apps.find((a) => a.type === 'private')?.id ?? ''); }, [p, apps]);
  const [asked] = useDebouncedValue({ as, method, path, body }, 400);
  const preview = useQuery({
    queryKey: ['preview', id, asked], retry: false, enabled: !!p && (!!asked.as || !p.require_auth), placeholderData: (x) => x,
    queryFn: () => call<Preview>('POST', `/proxies/${id}/preview`, { ...(p!.require_auth ? { application_id: asked.as } : {}), method: asked.method, path: asked.path, ...(asked.method === 'GET' ? {} : { headers: { 'Content-Type': 'application/json' }, body: asked.body }) }),
  });
  if (got.isError) return <Failed error={got.error} retry={() => got.refetch()} />;
  if (!p) return <Lines n={8} />;
  const v = preview.data;
  const code = [p.request_transform?.code && 'the request', p.response_transform?.code && 'the response'].filter(Boolean).join(' and ');
  return (
    <>
      <PageHead crumb={{ to: '/proxies', label: 'Proxies' }} title={p.name} about={<span className="row wrap" style={{ gap: 6 }}>Sends to <span className="mono" style={{ color: 'var(--ink)' }}>{p.destination_url}</span></span>}
        actions={<><Curl method="POST" path={`/proxy${path}`} body={{ number: `{{ ${card.data || 'token-id'} | json: '$.number' }}` }} />{me.may('proxy:update') && <Button variant="default" leftSection={<Icon name="pencil" size={14} />} onClick={() => setEditing(true)}>Change…</Button>}</>} />
      {!p.require_auth && !p.application_id && <div style={{ marginBottom: 14 }}><Note tone="bad"><b style={{ fontWeight: 600 }}>Anyone with this proxy's key can send any value of the vault to its destination.</b> Require an API key, or name an application whose rules say which tokens it may use.</Note></div>}
      <div className="grid two halves" style={{ gridTemplateColumns: 'minmax(0, 1fr) minmax(0, 1fr)', alignItems: 'stretch', marginBottom: 16 }}>
        <section className="panel half-l" aria-label="What you send">
          <header><h2>What you send</h2><span className="grow" /><span className="dim" style={{ fontSize: 12 }}>with tokens</span></header>
          <div className="row wrap" style={{ padding: '11px 12px', minHeight: 54, borderBottom: '1px solid var(--line)' }}>
            <Select aria-label="Method" w={86} allowDeselect={false} data={['POST', 'PUT', 'PATCH', 'GET']} value={method} onChange={(m) => m && setMethod(m)} /><TextInput aria-label="Path" className="grow" miw={110} leftSectionWidth={56} leftSection={<span className="mono faint">/proxy</span>} value={path} onChange={(e) => setPath(e.currentTarget.value)} styles={{ input: { fontFamily: 'var(--mantine-font-family-monospace)', fontSize: 12 } }} />
            {p.require_auth ? <Select aria-label="Called as" w={150} allowDeselect={false} searchable value={as ?? null} onChange={(x) => x && setAs(x)} data={(apps ?? []).filter((a) => a.type === 'private').map((a) => ({ value: a.id, label: a.name }))} leftSection={<Icon name="app" size={13} />} /> : <span className="chip warn">no API key</span>}
          </div>
          <Suspense fallback={<Lines n={6} />}><Code value={body} change={setBody} language="json" label="Body to send" height="300px" /></Suspense>
        </section>
        <section className="panel half-r" aria-label="What the destination gets">
          <header><h2>What the destination gets</h2><span className="grow" /><span className="chip mask"><Icon name="eyeOff" size={12} />masked here, nothing is sent</span></header>
          {preview.isError ? <div style={{ padding: 14 }}><Failed error={preview.error} /></div> : !v ? <Lines n={6} /> : (
            <div style={{ opacity: preview.isPlaceholderData ? 0.6 : 1 }}>
              <div className="row" style={{ padding: '0 14px', minHeight: 54, borderBottom: '1px solid var(--line)' }}><span className="chip">{v.method}</span><span className="mono" style={{ overflowWrap: 'anywhere' }}>{v.url}</span></div>
              <pre className="out" tabIndex={0} aria-label="Masked request" style={{ minHeight: 300 }}>{Object.entries(v.headers).map(([k, x]) => <span key={k} className="dim">{k}: {x}{'\n'}</span>)}{'\n'}{pretty(v.body, asked.body)}</pre>
            </div>
          )}
        </section>
      </div>
      <div className="grid two" style={{ gridTemplateColumns: 'minmax(0, 1.6fr) minmax(0, 1fr)', alignItems: 'start' }}>
        <Panel title="Values in this request" right={v && <span className="dim" style={{ fontSize: 12 }}>{v.tokens.length} {v.tokens.length === 1 ? 'token' : 'tokens'}</span>}>
          {v && !preview.isError ? v.tokens.length ? <div className="scroll"><table className="t"><thead><tr><th>Token</th><th className="wide">Container</th><th>Destination gets</th><th>Because</th></tr></thead><tbody>{v.tokens.map((t, i) => <tr key={i}><td>{t.id ? <Link to={`/tokens/${encodeURIComponent(t.id)}`} className="mono">{t.id}</Link> : <span className="dim">a token</span>}<div className="faint" style={{ fontSize: 12 }}>{thing(t.type)}</div></td><td className="wide">{t.containers.map((c) => <Path key={c}>{c}</Path>)}</td><td>{t.allowed && t.transform ? <Exposure of={t.transform as Transform} /> : <span className="chip bad">Refused</span>}</td><td>{!t.decided_by ? '–' : t.decided_by.rule !== undefined ? `rule ${t.decided_by.rule + 1} of ` : 'a plain permission of '}<Who id={p.require_auth ? asked.as : p.application_id} /></td></tr>)}</tbody></table></div> : <div className="dim" style={{ padding: 14 }}>No tokens in this request.</div> : <div className="dim" style={{ padding: 14 }}>Nothing would be sent.</div>}
          {code && <footer><Icon name="info" size={14} />Code changes {code} after this. It is not run in previews.</footer>}
        </Panel>
        <Panel title="Settings" pad>
          <dl className="dl"><dt>Callers need</dt><dd>{p.require_auth ? 'the proxy key and an API key that may use tokens' : 'the proxy key alone'}</dd><dt>Acts as</dt><dd>{p.application_id ? <Who id={p.application_id} /> : <span className="dim">nobody</span>}</dd><dt>Proxy key</dt><dd className="row" style={{ gap: 4 }}><span className="mono veil">••••••••••••{p.key.slice(-4)}</span><Copy text={p.key} label="Copy the proxy key" /></dd><dt>Code on</dt><dd>{code || <span className="dim">nothing</span>}</dd><dt>Changed</dt><dd><When at={p.modified_at ?? p.created_at} /> by <Who id={p.modified_by ?? p.created_by} system /></dd></dl>
          <div className="row wrap" style={{ marginTop: 10, marginLeft: -10 }}>
            {me.may('proxy:update') && <Button variant="subtle" color="red" className="danger" leftSection={<Icon name="refresh" size={14} />} onClick={() => setRotating(true)}>Replace the key…</Button>}
            {me.may('proxy:delete') && <Button variant="subtle" color="red" className="danger" leftSection={<Icon name="trash" size={14} />} onClick={() => setDoomed(true)}>Delete this proxy…</Button>}
          </div>
        </Panel>
      </div>
      <Transforms proxy={p} may={me.may('proxy:update')} />
      <ProxyForm opened={editing} close={() => setEditing(false)} proxy={p} />
      <Danger opened={rotating} close={() => setRotating(false)} title="Replace the key?" name={p.name} action="Replace key" run={async () => { await call('POST', `/proxies/${p.id}/rotate-key`); await client.invalidateQueries({ queryKey: ['proxy', id] }); }}>Callers with the old key are refused at once, until they have the new one.</Danger>
      <Danger opened={doomed} close={() => setDoomed(false)} title={`Delete ${p.name}?`} name={p.name} action="Delete proxy" run={async () => { await call('DELETE', `/proxies/${p.id}`); await client.invalidateQueries({ queryKey: ['/proxies'] }); go('/proxies'); }}>Calls through this proxy fail at once. This cannot be undone.</Danger>
    </>
  );
}
