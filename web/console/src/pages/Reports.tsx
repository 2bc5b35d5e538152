import { Button } from '@mantine/core';
import { useState } from 'react';
import { download, isMissing, type Transform } from '../api';
import { useOptional } from '../data';
import { Icon } from '../icons';
import { useMe } from '../session';
import { Closed, Curl, Empty, Exposure, Failed, Lines, NotYet, PageHead, Panel, Path, When, Who } from '../ui';
import { inWords } from '../words';

interface Access { kind: string; id: string; name?: string; container?: string; transform: string; permission: string; changed_at: string; changed_by?: string }

/** Evidence downloads the signed archive for an auditor. */
function Evidence() {
  const [error, setError] = useState<unknown>(), [busy, setBusy] = useState(false);
  const get = async () => { setBusy(true); setError(undefined); try { await download('/reports/evidence', 'evidence.zip', '*/*'); } catch (e) { setError(isMissing(e) ? new Error('This server makes no evidence yet.') : e); } finally { setBusy(false); } };
  return (
    <Panel title="Evidence for an auditor" pad>
      <div className="stack"><div className="dim">A signed archive: who may see what, the inventory of keys, retention, the integrity of the log, and the configuration without secrets.</div>{error !== undefined && <Failed error={error} />}<div><Button variant="default" loading={busy} leftSection={<Icon name="download" size={14} />} onClick={get}>Download the evidence</Button></div></div>
    </Panel>
  );
}

export default function Reports() {
  const me = useMe();
  const got = useOptional<{ data: Access[] }>('/reports/access?size=100', me.may('application:read'));
  const rows = got.data?.data;
  return (
    <>
      <PageHead title="Reports" about="For the people who ask: who may see values, in which containers, and since when." actions={<Curl path="/reports/access" />} />
      {!me.may('report:read') ? <Panel label="Reports"><Closed permission="report:read" /></Panel> : (
        <div className="grid two side-320">
          <Panel title="Who may see values">
            {!me.may('application:read') ? <Closed permission="application:read" /> : got.isError ? <div style={{ padding: 14 }}><Failed error={got.error} retry={() => got.refetch()} /></div> : got.data === null ? <NotYet what="reports" /> : !rows ? <Lines /> : rows.length === 0 ? <Empty icon="lock" title="Nobody sees values" /> : (
              <div className="scroll"><table className="t"><thead><tr><th>Who</th><th>May</th><th className="wide">Container</th><th>Sees</th><th className="right wide">Changed</th></tr></thead><tbody>{rows.map((r, i) => <tr key={i}><td><Who id={r.id} name={r.name} />{r.kind === 'session' && <span className="faint"> in a session</span>}</td><td>{inWords(r.permission).toLowerCase()}</td><td className="wide"><Path>{r.container ?? '/'}</Path></td><td><Exposure of={r.transform as Transform} /></td><td className="right wide"><When at={r.changed_at} /></td></tr>)}</tbody></table></div>
            )}
          </Panel>
          <Evidence />
        </div>
      )}
    </>
  );
}
