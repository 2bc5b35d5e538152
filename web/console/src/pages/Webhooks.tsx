import { Button, Textarea, TextInput } from '@mantine/core';
import { useQueryClient } from '@tanstack/react-query';
import { useEffect, useState } from 'react';
import { Link, useNavigate } from 'react-router';
import { call, type Page } from '../api';
import { useOptional } from '../data';
import { Icon } from '../icons';
import { useMe } from '../session';
import { Closed, Commit, Curl, Empty, Failed, GoRow, Lines, NotYet, Once, PageHead, Panel, Sheet, When } from '../ui';

export interface Webhook { id: string; name: string; url: string; events: string[]; state?: string; secret?: string; created_at?: string; modified_at?: string; disabled_reason?: string }

/** WebhookForm creates a webhook, or changes one. */
export function WebhookForm({ opened, close, webhook }: { opened: boolean; close: () => void; webhook?: Webhook }) {
  const client = useQueryClient(), go = useNavigate();
  const [name, setName] = useState(''), [url, setUrl] = useState(''), [types, setTypes] = useState('*'), [made, setMade] = useState<Webhook>();
  useEffect(() => { if (opened) { setName(webhook?.name ?? ''); setUrl(webhook?.url ?? ''); setTypes(webhook ? webhook.events.join('\n') : '*'); } }, [opened, webhook]);
  const run = async () => {
    const list = types.split(/[\s,]+/).filter(Boolean);
    const body = { name: name.trim(), url: url.trim(), events: list, ...(webhook?.state ? { state: webhook.state } : {}) };
    const got = webhook ? await call<Webhook>('PUT', `/webhooks/${webhook.id}`, body) : await call<Webhook>('POST', '/webhooks', body);
    await Promise.all([client.invalidateQueries({ queryKey: ['/webhooks?size=100'] }), client.invalidateQueries({ queryKey: [`/webhooks/${webhook?.id}`] })]);
    close();
    if (!webhook) { if (got.secret) setMade(got); else go(`/webhooks/${got.id}`); }
  };
  return (
    <>
      <Sheet opened={opened} close={close} title={webhook ? 'Change webhook' : 'New webhook'} action={webhook ? 'Save' : 'Create webhook'} run={run} ready={!!name.trim() && !!url.trim()}>
        <TextInput label="Name" value={name} onChange={(e) => setName(e.currentTarget.value)} data-autofocus />
        <TextInput label="Address" placeholder="https://shop.example/hooks/vault" value={url} onChange={(e) => setUrl(e.currentTarget.value)} styles={{ input: { fontFamily: 'var(--mantine-font-family-monospace)' } }} />
        <Textarea label="Events" description="One type per line, such as token.*" autosize minRows={2} value={types} onChange={(e) => setTypes(e.currentTarget.value)} styles={{ input: { fontFamily: 'var(--mantine-font-family-monospace)' } }} />
      </Sheet>
      <Once secret={made?.secret} close={() => { const id = made!.id; setMade(undefined); go(`/webhooks/${id}`); }} title={`The secret of ${made?.name}`} />
    </>
  );
}

export default function Webhooks() {
  const me = useMe();
  const got = useOptional<Page<Webhook>>('/webhooks?size=100', me.may('webhook:read'));
  const [creating, setCreating] = useState(false);
  const list = got.data?.data;
  return (
    <>
      <PageHead title="Webhooks" about="Tell your systems what changed. Events carry ids and types, never values." actions={<><Curl path="/webhooks" />{me.may('webhook:create') && got.data !== null && <Commit leftSection={<Icon name="plus" size={14} />} onClick={() => setCreating(true)}>New webhook</Commit>}</>} />
      <Panel label="Webhooks">{!me.may('webhook:read') ? <Closed permission="webhook:read" /> : got.isError ? <div style={{ padding: 14 }}><Failed error={got.error} retry={() => got.refetch()} /></div> : got.data === null ? <NotYet what="webhooks" /> : !list ? <Lines /> : list.length === 0 ? <Empty icon="webhook" title="No webhooks yet" action={me.may('webhook:create') ? <Button variant="default" onClick={() => setCreating(true)}>Create the first webhook</Button> : undefined}>When a token is created, changed or about to expire, your server gets a signed request.</Empty> : (
        <div className="scroll"><table className="t"><thead><tr><th>Name</th><th className="wide">Address</th><th className="wide">Events</th><th>State</th><th className="right wide">Changed</th></tr></thead><tbody>{list.map((w) => <GoRow key={w.id} to={`/webhooks/${w.id}`}><td><Link to={`/webhooks/${w.id}`} style={{ color: 'var(--ink)', fontWeight: 500 }}>{w.name}</Link></td><td className="wide mono dim">{w.url}</td><td className="wide mono dim">{w.events.join(', ')}</td><td><span className={`chip ${w.state === 'disabled' ? 'bad' : 'good'}`}>{w.state ?? 'enabled'}</span></td><td className="right wide">{w.created_at && <When at={w.modified_at ?? w.created_at} />}</td></GoRow>)}</tbody></table></div>)}</Panel>
      <WebhookForm opened={creating} close={() => setCreating(false)} />
    </>
  );
}
