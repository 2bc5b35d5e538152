import { Button } from '@mantine/core';
import { useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { useNavigate, useParams } from 'react-router';
import { call, type Page } from '../api';
import { useOptional } from '../data';
import { Icon } from '../icons';
import { useMe } from '../session';
import { Curl, Danger, Empty, Failed, Lines, NotYet, Once, PageHead, Panel, When } from '../ui';
import { WebhookForm, type Webhook } from './Webhooks';

interface Delivery { id: string; event_type: string; entity_type: string; entity_id: string; state: string; attempts: number; response_status?: number; latency_ms: number; attempted_at?: string }

function Deliveries({ id, may }: { id: string; may: boolean }) {
  const client = useQueryClient();
  const path = `/webhooks/${id}/deliveries?size=50`;
  const got = useOptional<Page<Delivery>>(path, true, 10_000);
  const [error, setError] = useState<unknown>();
  const resend = async (d: Delivery) => { setError(undefined); try { await call('POST', `/webhooks/${id}/deliveries/${d.id}/resend`); await client.invalidateQueries({ queryKey: [path] }); } catch (e) { setError(e); } };
  const list = got.data?.data;
  return (
    <Panel title="Deliveries" right={<span className="dim" style={{ fontSize: 12 }}>newest first</span>}>
      {error !== undefined && <div style={{ padding: 12 }}><Failed error={error} /></div>}
      {got.isError ? <div style={{ padding: 14 }}><Failed error={got.error} /></div> : got.data === null ? <NotYet what="deliveries" /> : !list ? <Lines /> : list.length === 0 ? <Empty icon="webhook" title="No deliveries yet">Send a test event to see one.</Empty> : (
        <div className="scroll"><table className="t"><thead><tr><th>Event</th><th>State</th><th className="wide">Response</th><th className="wide">Attempts</th><th className="wide">When</th><th aria-label="Actions" /></tr></thead><tbody>{list.map((d) => <tr key={d.id}><td className="mono">{d.event_type}</td><td><span className={`chip ${d.state === 'delivered' ? 'good' : d.state === 'failed' ? 'bad' : ''}`}>{d.state}</span></td><td className="wide num">{d.response_status ?? 'no response'}<span className="faint"> in {d.latency_ms} ms</span></td><td className="wide num">{d.attempts}</td><td className="wide">{d.attempted_at && <When at={d.attempted_at} />}</td><td className="right">{may && <Button variant="default" aria-label={`Send ${d.id} again`} onClick={() => resend(d)}>Send again</Button>}</td></tr>)}</tbody></table></div>
      )}
    </Panel>
  );
}

export default function WebhookPage() {
  const { id = '' } = useParams();
  const me = useMe(), client = useQueryClient(), go = useNavigate();
  const got = useOptional<Webhook>(`/webhooks/${id}`);
  const [editing, setEditing] = useState(false), [doomed, setDoomed] = useState(false), [secret, setSecret] = useState<string>(), [error, setError] = useState<unknown>(), [busy, setBusy] = useState('');
  const w = got.data, may = me.may('webhook:update');
  if (got.isError) return <Failed error={got.error} retry={() => got.refetch()} />;
  if (w === null) return <Panel label="Webhook"><Empty icon="webhook" title="Unknown webhook" /></Panel>;
  if (!w) return <Lines n={6} />;
  const act = (name: string, run: () => Promise<unknown>) => async () => { setBusy(name); setError(undefined); try { await run(); await client.invalidateQueries({ queryKey: [`/webhooks/${id}/deliveries?size=50`] }); } catch (e) { setError(e); } finally { setBusy(''); } };
  const test = act('test', () => call('POST', `/webhooks/${id}/test`));
  const rotate = act('rotate', async () => setSecret((await call<{ secret: string }>('POST', `/webhooks/${id}/secret/rotate`)).secret));
  return (
    <>
      <PageHead crumb={{ to: '/webhooks', label: 'Webhooks' }} title={w.name} tags={<span className={`chip ${w.state === 'disabled' ? 'bad' : 'good'}`}>{w.state ?? 'enabled'}</span>} about={<><span className="mono">{w.url}</span>{w.disabled_reason && <span style={{ color: 'var(--bad)' }}> · {w.disabled_reason}</span>}</>}
        actions={<><Curl path={`/webhooks/${id}/deliveries`} />{may && <><Button variant="default" loading={busy === 'test'} onClick={test}>Send a test event</Button><Button variant="default" leftSection={<Icon name="pencil" size={14} />} onClick={() => setEditing(true)}>Change…</Button></>}</>} />
      {error !== undefined && <div style={{ marginBottom: 12 }}><Failed error={error} /></div>}
      <div className="grid two side-320">
        <Deliveries id={id} may={may} />
        <div className="stack" style={{ gap: 16 }}>
          <Panel title="Events" pad><div className="row wrap" style={{ gap: 4 }}>{w.events.map((t) => <span key={t} className="chip path">{t}</span>)}</div></Panel>
          <Panel title="Secret" pad><div className="stack"><div className="dim">It signs every delivery. After a replacement both sign for 24 hours.</div>{may && <div><Button variant="default" loading={busy === 'rotate'} onClick={rotate}>Replace the secret</Button></div>}{me.may('webhook:delete') && <div><Button variant="subtle" color="red" className="danger" ml={-10} leftSection={<Icon name="trash" size={14} />} onClick={() => setDoomed(true)}>Delete this webhook…</Button></div>}</div></Panel>
        </div>
      </div>
      <WebhookForm opened={editing} close={() => setEditing(false)} webhook={w} />
      <Once secret={secret} close={() => setSecret(undefined)} title="The new secret" />
      <Danger opened={doomed} close={() => setDoomed(false)} title={`Delete ${w.name}?`} name={w.name} action="Delete webhook" run={async () => { await call('DELETE', `/webhooks/${id}`); await client.invalidateQueries({ queryKey: ['/webhooks?size=100'] }); go('/webhooks'); }}>Deliveries that wait are dropped. This cannot be undone.</Danger>
    </>
  );
}
