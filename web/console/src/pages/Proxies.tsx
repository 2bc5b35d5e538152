import { Button, Checkbox, Select, TextInput } from '@mantine/core';
import { useQueryClient } from '@tanstack/react-query';
import { useEffect, useState } from 'react';
import { Link, useNavigate, useSearchParams } from 'react-router';
import { call, type Proxy } from '../api';
import { useApps, useProxies } from '../data';
import { Icon } from '../icons';
import { useMe } from '../session';
import { Closed, Commit, Curl, Empty, Failed, GoRow, Lines, Note, PageHead, Panel, Sheet, When, Who } from '../ui';

/** ProxyForm creates a proxy, or changes one. */
export function ProxyForm({ opened, close, proxy }: { opened: boolean; close: () => void; proxy?: Proxy }) {
  const client = useQueryClient(), go = useNavigate(), apps = useApps().data;
  const [name, setName] = useState(''), [url, setUrl] = useState(''), [auth, setAuth] = useState(true), [app, setApp] = useState<string | null>(null);
  useEffect(() => { if (opened) { setName(proxy?.name ?? ''); setUrl(proxy?.destination_url ?? ''); setAuth(proxy?.require_auth ?? true); setApp(proxy?.application_id ?? null); } }, [opened, proxy]);
  const run = async () => {
    const body = { name: name.trim(), destination_url: url.trim(), require_auth: auth, application_id: app };
    const made = proxy ? await call('PATCH', `/proxies/${proxy.id}`, body).then(() => proxy) : await call<Proxy>('POST', '/proxies', { ...body, application_id: app ?? undefined });
    await Promise.all([client.invalidateQueries({ queryKey: ['/proxies'] }), client.invalidateQueries({ queryKey: ['proxy', made.id] })]);
    close();
    go(`/proxies/${made.id}`);
  };
  return (
    <Sheet opened={opened} close={close} title={proxy ? 'Change proxy' : 'New proxy'} action={proxy ? 'Save' : 'Create proxy'} run={run} ready={!!name.trim() && !!url.trim()}>
      <TextInput label="Name" placeholder="Acme Pay charges" value={name} onChange={(e) => setName(e.currentTarget.value)} data-autofocus />
      <TextInput label="Destination" description="Where requests go, with values in place of tokens" placeholder="https://api.acmepay.example/v1" value={url} onChange={(e) => setUrl(e.currentTarget.value)} styles={{ input: { fontFamily: 'var(--mantine-font-family-monospace)' } }} />
      <Checkbox checked={auth} onChange={(e) => setAuth(e.currentTarget.checked)} label="Callers need an API key that may use tokens" description="Without it, the key of the proxy is enough" />
      <Select label="Acts as" description="Whose rules decide which tokens may be sent, where callers need no API key" placeholder="Nobody" clearable clearButtonProps={{ 'aria-label': 'Nobody' }} value={app} onChange={setApp} data={(apps ?? []).filter((a) => a.type === 'private').map((a) => ({ value: a.id, label: a.name }))} />
      {!auth && !app && <Note tone="bad">Anyone with the key of this proxy could send any value of the vault to its destination.</Note>}
    </Sheet>
  );
}

export default function Proxies() {
  const me = useMe(), list = useProxies();
  const [params] = useSearchParams();
  const [creating, setCreating] = useState(params.has('new'));
  return (
    <>
      <PageHead title="Proxies" about="Requests go in with tokens and arrive at their destination with values." actions={<><Curl path="/proxies" />{me.may('proxy:create') && <Commit leftSection={<Icon name="plus" size={14} />} onClick={() => setCreating(true)}>New proxy</Commit>}</>} />
      <Panel label="Proxies">{!me.may('proxy:read') ? <Closed permission="proxy:read" /> : list.isError ? <div style={{ padding: 14 }}><Failed error={list.error} retry={() => list.refetch()} /></div> : !list.data ? <Lines /> : list.data.length === 0 ? <Empty icon="proxy" title="No proxies yet" action={me.may('proxy:create') ? <Button variant="default" onClick={() => setCreating(true)}>Create the first proxy</Button> : undefined}>Your server calls the vault in place of your payment service, with a token where the card number would be. The vault puts the number in and passes the request on.</Empty> : (
        <div className="scroll"><table className="t"><thead><tr><th>Name</th><th className="wide">Destination</th><th>Callers need</th><th className="wide">Acts as</th><th className="right wide">Changed</th></tr></thead><tbody>{list.data.map((p) => <GoRow key={p.id} to={`/proxies/${p.id}`}><td><Link to={`/proxies/${p.id}`} style={{ color: 'var(--ink)', fontWeight: 500 }}>{p.name}</Link></td><td className="wide mono dim">{p.destination_url}</td><td>{p.require_auth ? <span className="dim">an API key too</span> : p.application_id ? <span className="chip warn">its key alone</span> : <span className="chip bad"><Icon name="alert" size={12} />its key alone, any token</span>}</td><td className="wide">{p.application_id ? <Who id={p.application_id} /> : <span className="faint">nobody</span>}</td><td className="right wide"><When at={p.modified_at ?? p.created_at} /></td></GoRow>)}</tbody></table></div>)}</Panel>
      <ProxyForm opened={creating} close={() => setCreating(false)} />
    </>
  );
}
