import { Button } from '@mantine/core';
import { useState } from 'react';
import { download, type Transform } from '../api';
import { useOptional } from '../data';
import { Icon } from '../icons';
import { useMe } from '../session';
import { Closed, Curl, Empty, Exposure, Failed, Lines, NotYet, PageHead, Panel, Path, When, Who } from '../ui';

interface Access { kind?: string; id?: string; application_id?: string; name?: string; container?: string; containers?: string[]; transform?: string; permission?: string; permissions?: string[]; changed_at?: string; modified_at?: string; change?: string }

/** Evidence downloads the signed archive for an auditor. */
function Evidence() {
  const [error, setError] = useState<unknown>(), [busy, setBusy] = useState(false);
  const get = async () => { setBusy(true); setError(undefined); try { await download('/reports/evidence', 'evidence.zip', '*/*'); } catch (e) { setError(e); } finally { setBusy(false); } };
  return (
    <Panel title="Evidence for an auditor" pad>
      <div className="stack"><div className="dim">A signed archive: who may see what, the inventory of keys, retention, the integrity of the log, and the configuration without secrets.</div>{error !== undefined && <Failed error={error} />}<div><Button variant="default" loading={busy} leftSection={<Icon name="download" size={14} />} onClick={get}>Download the evidence</Button></div></div>
    </Panel>
  );
}

export default function Reports() {
  const me = useMe();
  const got = useOptional<{ data?: Access[]; holders?: Access[] }>('/reports/access', me.may('report:read'));
  const rows = got.data?.data ?? got.data?.holders;
  return (
    <>
      <PageHead title="Reports" about="For the people who ask: who may see values, in which containers, and since when." actions={<Curl path="/reports/access" />} />
      {!me.may('report:read') ? <Panel label="Reports"><Closed permission="report:read" /></Panel> : (
        <div className="grid two side-320">
          <Panel title="Who may see values">
            {got.isError ? <div style={{ padding: 14 }}><Failed error={got.error} retry={() => got.refetch()} /></div> : got.data === null ? <NotYet what="reports" /> : !rows ? <Lines /> : rows.length === 0 ? <Empty icon="lock" title="Nobody sees values" /> : (
              <div className="scroll"><table className="t"><thead><tr><th>Who</th><th>Container</th><th>Sees</th><th className="right wide">Changed</th></tr></thead><tbody>{rows.map((r, i) => <tr key={i}><td><Who id={r.application_id ?? r.id} name={r.name} /></td><td>{(r.containers ?? [r.container ?? '/']).map((c) => <Path key={c}>{c}</Path>)}</td><td>{r.transform ? <Exposure of={r.transform as Transform} /> : '–'}</td><td className="right wide">{r.changed_at ?? r.modified_at ? <When at={(r.changed_at ?? r.modified_at)!} /> : <span className="faint">–</span>}</td></tr>)}</tbody></table></div>
            )}
          </Panel>
          <Evidence />
        </div>
      )}
    </>
  );
}
