import { Button, Popover, Progress } from '@mantine/core';
import { useQuery, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { call, save } from '../api';
import { useOptional } from '../data';
import { Icon } from '../icons';
import { Copy, Failed, Note, When, Who } from '../ui';

export interface Head { tenant_id: string; number: number; entries: number; sealed_at: string; link: string; signature: string; public_key: string }
export interface Verified { at: string; actor_id?: string; actor_name?: string; actor_type: string; batches: number; entries: number; findings: number; clean: boolean }
export interface IntegrityState { head?: Head; unsealed: number; oldest_unsealed_at?: string; last_verification?: Verified }
interface Verification { id: string; state: 'queued' | 'running' | 'done' | 'failed'; progress?: { doing: string; done: number; total: number }; result?: { clean: boolean; batches: number; entries: number; found: number; findings: { kind: string; detail: string; entry_id?: string; batch?: number }[] } }

const count = (n: number) => n.toLocaleString('en');

/** Verify starts a verification and shows how far it has come. */
function Verify() {
  const client = useQueryClient();
  const [id, setId] = useState<string>(), [error, setError] = useState<unknown>();
  const run = useQuery({ queryKey: ['verify', id], enabled: !!id, retry: false, queryFn: async () => { const v = await call<Verification>('GET', `/logs/verify/${id}`); if (v.state === 'done') void client.invalidateQueries({ queryKey: ['/logs/integrity'] }); return v; }, refetchInterval: (q) => (['done', 'failed'].includes(q.state.data?.state ?? '') ? false : 1000) });
  const start = async () => { setError(undefined); try { setId((await call<Verification>('POST', '/logs/verify')).id); } catch (e) { setError(e); } };
  const v = run.data, busy = !!id && !v?.result && v?.state !== 'failed';
  return (
    <div className="stack" style={{ gap: 8 }}>
      {error !== undefined && <Failed error={error} />}
      {busy && <div role="status"><div className="dim" style={{ fontSize: 12, marginBottom: 4 }}>{v?.progress ? `${v.progress.doing}: ${count(v.progress.done)}${v.progress.total ? ` of ${count(v.progress.total)}` : ''}` : 'Waiting for its turn'}</div><Progress aria-label="Verification" value={v?.progress?.total ? (100 * v.progress.done) / v.progress.total : 8} animated /></div>}
      {v?.state === 'failed' && <Note tone="bad">The verification did not finish. Start it again.</Note>}
      {v?.result && (v.result.clean ? <Note tone="good">All {count(v.result.entries)} entries are as they were signed.</Note> : <Note tone="bad"><b style={{ fontWeight: 600 }}>{v.result.found} findings.</b>{v.result.findings.slice(0, 5).map((f, i) => <div key={i}>{f.kind}: {f.detail}</div>)}</Note>)}
      <Button variant="default" loading={busy} onClick={start} leftSection={<Icon name="shield" size={14} />}>Verify the whole log</Button>
    </div>
  );
}

/** Integrity shows whether the log is as it was signed, and starts a verification. */
export function Integrity() {
  const got = useOptional<IntegrityState>('/logs/integrity', true, 60_000);
  const s = got.data, last = s?.last_verification;
  const state = !s ? 'unknown' : last && !last.clean ? 'bad' : last ? 'good' : 'new';
  const label = { unknown: 'Integrity not known', bad: 'Verification found changes', good: 'Verified', new: 'Signed, not verified yet' }[state];
  return (
    <Popover width={400} position="bottom-end" shadow="md" withArrow trapFocus>
      <Popover.Target><button className={`chip button ${state === 'bad' ? 'bad' : state === 'good' ? 'good' : ''}`}><Icon name={state === 'bad' ? 'alert' : 'shield'} size={14} />{label}</button></Popover.Target>
      <Popover.Dropdown aria-label="Integrity of the log">
        {!s ? <div className="stack"><div>This server does not show the state of the log here. Anyone who runs it proves the log with</div><div className="value row" style={{ padding: '4px 4px 4px 10px' }}><span className="mono grow">tokenkeep audit verify TENANT</span><Copy text="tokenkeep audit verify TENANT" label="Copy the command" /></div></div> : (
          <div className="stack">
            <div><b style={{ fontWeight: 600 }}>New entries are signed every few seconds</b><div className="dim">Each batch is chained to the one before, so an entry that is changed or removed no longer fits.</div></div>
            <dl className="dl">
              {s.head && <><dt>Signed</dt><dd className="num">{count(s.head.number)} batches, the newest <When at={s.head.sealed_at} /></dd></>}
              <dt>Not signed yet</dt><dd className="num">{count(s.unsealed)} entries</dd>
              <dt>Last verified</dt><dd>{last ? <><When at={last.at} /> by <Who id={last.actor_id} name={last.actor_name} system />, {last.clean ? 'nothing found' : `${last.findings} findings`}</> : 'never'}</dd>
            </dl>
            <Verify />
            {s.head && <Button variant="subtle" color="gray" className="quiet" leftSection={<Icon name="download" size={14} />} onClick={() => save(new Blob([JSON.stringify(s.head, null, 2) + '\n'], { type: 'application/json' }), 'log-head.json')}>Save the signed head, to find later what was cut off</Button>}
          </div>
        )}
      </Popover.Dropdown>
    </Popover>
  );
}
