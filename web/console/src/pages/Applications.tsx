import { TextInput } from '@mantine/core';
import { useQueryClient } from '@tanstack/react-query';
import { useEffect, useState } from 'react';
import { Link, useNavigate, useSearchParams } from 'react-router';
import { call, sight, type Application, type AppType, type Rule } from '../api';
import { useApps } from '../data';
import { Icon } from '../icons';
import { useMe } from '../session';
import { ago, Closed, Commit, Curl, Empty, Exposure, Failed, GoRow, Lines, Once, PageHead, Panel, Sheet, When } from '../ui';
import { kind } from '../words';

interface Template { title: string; about: string; type: AppType; permissions: string[]; rules?: Rule[] }
const templates: Template[] = [
  { title: 'Checkout page', about: 'A public key for card fields: creates tokens, reads none', type: 'public', permissions: ['token:create'] },
  { title: 'Server that charges', about: 'Sends card values through proxies and reactors, and sees masks', type: 'private', permissions: ['token:create'], rules: [
    { description: 'Charges send the number to the processor', container: '/pci/', transform: 'reveal', permissions: ['token:use'] }, { description: 'Receipts show the last four digits', container: '/pci/', transform: 'mask', permissions: ['token:read', 'token:search'] }] },
  { title: 'Support tool', about: 'Finds tokens and sees masks', type: 'private', permissions: [], rules: [{ description: 'The mask is enough to recognize a card', container: '/', transform: 'mask', permissions: ['token:read', 'token:search'] }] },
  { title: 'Deploys from CI', about: 'Changes reactors and proxies, sees no tokens', type: 'management', permissions: ['reactor:create', 'reactor:read', 'reactor:update', 'proxy:create', 'proxy:read', 'proxy:update'] },
  { title: 'Auditor', about: 'Reads the log, applications and reports', type: 'management', permissions: ['log:read', 'report:read', 'application:read'] },
];

function Create({ opened, close }: { opened: boolean; close: () => void }) {
  const client = useQueryClient(), go = useNavigate();
  const [name, setName] = useState(''), [at, setAt] = useState(0), [made, setMade] = useState<Application & { key?: string }>();
  useEffect(() => { if (opened) { setName(''); setAt(0); } }, [opened]);
  const t = templates[at]!;
  const run = async () => {
    const app = await call<Application & { key?: string }>('POST', '/applications', { name: name.trim(), type: t.type, permissions: t.permissions, rules: t.rules ?? [] });
    await client.invalidateQueries({ queryKey: ['/applications'] });
    close(); setMade(app);
  };
  return (
    <>
      <Sheet opened={opened} close={close} title="New application" action="Create application" run={run} ready={!!name.trim()}>
        <TextInput label="Name" placeholder="Payments API" value={name} onChange={(e) => setName(e.currentTarget.value)} data-autofocus />
        <div role="radiogroup" aria-label="What it is for" className="stack" style={{ gap: 6 }}>
          {templates.map((x, i) => <label key={x.title} className={`choice ${i === at ? 'on' : ''}`}><input type="radio" name="template" checked={i === at} onChange={() => setAt(i)} /><span className="grow"><b>{x.title}</b><span>{x.about}</span></span><span className="chip line">{kind[x.type]!.label}</span></label>)}
        </div>
      </Sheet>
      <Once secret={made?.key} close={() => { const id = made!.id; setMade(undefined); go(`/applications/${id}`); }} title={`The key of ${made?.name}`} />
    </>
  );
}

export default function Applications() {
  const me = useMe(), apps = useApps();
  const [params] = useSearchParams();
  const [creating, setCreating] = useState(params.has('new'));
  return (
    <>
      <PageHead title="Applications" about="Every caller that your vault knows. Make one for each purpose: a key that leaks then opens little." actions={<><Curl path="/applications" />{me.may('application:create') && <Commit leftSection={<Icon name="plus" size={14} />} onClick={() => setCreating(true)}>New application</Commit>}</>} />
      <Panel label="Applications">
        {!me.may('application:read') ? <Closed permission="application:read" /> : apps.isError ? <div style={{ padding: 14 }}><Failed error={apps.error} retry={() => apps.refetch()} /></div> : !apps.data ? <Lines /> : apps.data.length === 0 ? <Empty icon="app" title="No applications yet">A server, a web page or a script each get one, with a key and no more access than they need.</Empty> : (
          <div className="scroll"><table className="t"><thead><tr><th>Name</th><th className="wide">Kind</th><th>Reads tokens as</th><th className="wide">Rules</th><th className="wide">Keys</th><th className="wide">Expires</th><th className="right wide">Changed</th></tr></thead>
            <tbody>{apps.data.map((a) => { const s = a.type === 'management' ? 'none' : sight(a); const over = a.expires_at && Date.parse(a.expires_at) < Date.now(); return (
              <GoRow key={a.id} to={`/applications/${a.id}`}>
                <td><Link to={`/applications/${a.id}`} style={{ color: 'var(--ink)', fontWeight: 500 }}>{a.name}</Link></td><td className="wide dim">{kind[a.type]!.label}</td>
                <td>{s === 'none' ? <span className="faint">no reading</span> : <Exposure of={s} />}</td><td className="wide num dim">{a.rules.length || '–'}</td>
                <td className="wide num">{a.keys.length}</td><td className="wide">{a.expires_at ? <span className={over ? 'chip bad' : 'dim'}>{over ? 'expired' : ago(a.expires_at)}</span> : <span className="faint">never</span>}</td><td className="right wide"><When at={a.modified_at ?? a.created_at} /></td>
              </GoRow>); })}</tbody></table></div>
        )}
      </Panel>
      <Create opened={creating} close={() => setCreating(false)} />
    </>
  );
}
