import { useOptional } from '../data';
import { Empty, Failed, Lines, NotYet, PageHead, Panel, When } from '../ui';

interface OperatorTenant { id: string; name: string; tokens?: number; total_tokens?: number; usage?: { total_tokens?: number }; health?: string; state?: string; limits_reached?: string[] | number; limits?: unknown; created_at?: string; last_active_at?: string }

/** Operator lists the tenants of the server with their health, usage and limits, and nothing of their data. */
export default function Operator() {
  const got = useOptional<{ data?: OperatorTenant[] } | OperatorTenant[]>('/operator/tenants', true, 30_000);
  const list = Array.isArray(got.data) ? got.data : got.data?.data;
  const tokens = (t: OperatorTenant) => t.total_tokens ?? t.tokens ?? t.usage?.total_tokens;
  const reached = (t: OperatorTenant) => (Array.isArray(t.limits_reached) ? t.limits_reached.length : t.limits_reached);
  return (
    <>
      <PageHead title="Tenants" about="Health, usage and limits. Operators never see the data of a tenant." />
      <Panel label="Tenants">{got.isError ? <div style={{ padding: 14 }}><Failed error={got.error} retry={() => got.refetch()} /></div> : got.data === null ? <NotYet what="list of tenants" /> : !list ? <Lines /> : list.length === 0 ? <Empty icon="building" title="No tenants yet" /> : (
        <div className="scroll"><table className="t"><thead><tr><th>Tenant</th><th>Health</th><th className="right">Tokens</th><th className="wide">Limits reached</th><th className="right wide">Made</th></tr></thead><tbody>{list.map((t) => <tr key={t.id}><td style={{ fontWeight: 500 }}>{t.name}</td><td><span className={`chip ${/ok|good|healthy|active|ready/.test(t.health ?? t.state ?? '') ? 'good' : ''}`}>{t.health ?? t.state ?? '–'}</span></td><td className="right num">{tokens(t)?.toLocaleString('en') ?? '–'}</td><td className="wide num">{reached(t) ?? '–'}</td><td className="right wide">{t.created_at ? <When at={t.created_at} /> : '–'}</td></tr>)}</tbody></table></div>)}</Panel>
    </>
  );
}
