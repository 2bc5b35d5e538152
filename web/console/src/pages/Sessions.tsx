import { Button } from '@mantine/core';
import { useQuery, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { call, type Page, type Session } from '../api';
import { useMe } from '../session';
import { Closed, Curl, Empty, Failed, Lines, PageHead, Panel, Path, When, Who } from '../ui';
import { inWords } from '../words';

export default function Sessions() {
  const me = useMe(), client = useQueryClient();
  const [error, setError] = useState<unknown>(), [busy, setBusy] = useState<string>();
  const s = useQuery({ queryKey: ['sessions'], enabled: me.may('session:read'), queryFn: () => call<Page<Session>>('GET', '/sessions?size=100'), refetchInterval: 20_000 });
  const end = async (id: string) => { setBusy(id); setError(undefined); try { await call('DELETE', `/sessions/${id}`); await client.invalidateQueries({ queryKey: ['sessions'] }); } catch (e) { setError(e); } finally { setBusy(undefined); } };
  const reach = (x: Session) => [...x.permissions.map((p) => inWords(p)), ...x.rules.flatMap((r) => r.permissions.map((p) => inWords(p)))].filter((v, i, all) => all.indexOf(v) === i).join(', ');
  return (
    <>
      <PageHead title="Sessions" about="Short-lived keys that browsers hold. They end by themselves; end one early when it has leaked." actions={<Curl path="/sessions" />} />
      {error !== undefined && <div style={{ marginBottom: 12 }}><Failed error={error} /></div>}
      <Panel label="Sessions">{!me.may('session:read') ? <Closed permission="session:read" /> : s.isError ? <div style={{ padding: 14 }}><Failed error={s.error} retry={() => s.refetch()} /></div> : !s.data ? <Lines /> : s.data.data.length === 0 ? <Empty icon="session" title="No live sessions">A web page opens one with a public key, and your server decides what it may do.</Empty> : (
        <div className="scroll"><table className="t"><thead><tr><th>Key begins with</th><th className="wide">Opened by</th><th className="wide">Authorized by</th><th className="wide">May</th><th>Ends</th><th aria-label="End" /></tr></thead><tbody>{s.data.data.map((x) => <tr key={x.id}><td className="mono">{x.prefix}…</td><td className="wide"><Who id={x.created_by} /></td><td className="wide">{x.authorized_by ? <Who id={x.authorized_by} /> : <span className="dim">not yet</span>}</td><td className="wide">{reach(x) || <span className="faint">nothing yet</span>} {x.rules[0]?.container && <Path>{x.rules[0].container}</Path>}</td><td><When at={x.expires_at} /></td><td className="right">{me.may('session:delete') && <Button variant="default" loading={busy === x.id} aria-label={`End session ${x.prefix}`} onClick={() => end(x.id)}>End</Button>}</td></tr>)}</tbody></table></div>)}</Panel>
    </>
  );
}
