import { Link } from 'react-router';
import { useApps, useOptional } from '../data';
import { useMe } from '../session';
import { ago, Closed, Curl, Empty, Failed, Lines, PageHead, Panel, When } from '../ui';

interface KeyUse { id: string; last_used_on?: string }
const year = 365 * 86400e3;

/** Keys lists the API keys with their age and last use: old ones first. */
export default function Keys() {
  const me = useMe(), apps = useApps();
  const report = useOptional<{ data: KeyUse[] }>('/reports/keys?size=100', me.may('application:read'));
  const uses = report.data?.data;
  const rows = (apps.data ?? []).flatMap((a) => a.keys.map((k) => ({ a, k, use: uses?.find((u) => u.id === k.id) }))).sort((x, y) => Date.parse(x.k.created_at) - Date.parse(y.k.created_at));
  return (
    <>
      <PageHead title="Keys" about="API keys by age. Rotate those that are old, and revoke those that nobody uses." actions={<Curl path="/reports/keys" />} />
      <Panel label="API keys">
        {!me.may('application:read') ? <Closed permission="application:read" /> : apps.isError ? <div style={{ padding: 14 }}><Failed error={apps.error} /></div> : !apps.data ? <Lines /> : rows.length === 0 ? <Empty icon="key" title="No keys yet" /> : (
          <div className="scroll"><table className="t"><thead><tr><th>Application</th><th>Key</th><th className="wide">Made</th><th>Last used</th></tr></thead><tbody>{rows.map(({ a, k, use }) => { const last = use?.last_used_on ?? k.last_used_on, old = Date.now() - Date.parse(k.created_at) > year; return <tr key={k.id}><td><Link to={`/applications/${a.id}`} style={{ color: 'var(--ink)', fontWeight: 500 }}>{a.name}</Link></td><td className="mono">{k.prefix.slice(0, 12)}…{k.prefix.slice(-6)}</td><td className="wide">{old ? <span className="chip warn">made {ago(k.created_at)}</span> : <When at={k.created_at} />}</td><td className="num">{last ?? <span className="faint">{uses ? 'not used yet' : '–'}</span>}</td></tr>; })}</tbody></table></div>
        )}
      </Panel>
      <div style={{ marginTop: 16 }}><Panel title="Keys that encrypt" pad><div className="dim">Every tenant has data keys of its own, wrapped by the key-encryption key of the server. Anyone who runs the server sees their versions, and rotates them, with <span className="mono">tokenkeep keys</span>; an operator who is signed in does it on the page of operators. Security codes have keys that are destroyed within the hour.</div></Panel></div>
    </>
  );
}
