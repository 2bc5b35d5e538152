import { Select, TextInput } from '@mantine/core';
import { useQueryClient } from '@tanstack/react-query';
import { useEffect, useState } from 'react';
import { Link, useNavigate, useSearchParams } from 'react-router';
import { call, type Reactor } from '../api';
import { useApps, useReactors } from '../data';
import { Icon } from '../icons';
import { useMe } from '../session';
import { Closed, Commit, Curl, Empty, Failed, GoRow, Lines, PageHead, Panel, Sheet, When, Who } from '../ui';

const code = `// Receives the values that the arguments name, and returns what callers may see.
module.exports = async (req) => {
  const { card } = req.args;
  return { raw: { last4: card.number.slice(-4) } };
};
`;

function Create({ opened, close }: { opened: boolean; close: () => void }) {
  const client = useQueryClient(), go = useNavigate(), apps = useApps().data;
  const [name, setName] = useState(''), [app, setApp] = useState<string | null>(null);
  useEffect(() => { if (opened) { setName(''); setApp(null); } }, [opened]);
  const run = async () => {
    const made = await call<Reactor>('POST', '/reactors', { name: name.trim(), code, configuration: {}, ...(app ? { application: { id: app } } : {}) });
    await client.invalidateQueries({ queryKey: ['/reactors'] });
    go(`/reactors/${made.id}`);
  };
  return (
    <Sheet opened={opened} close={close} title="New reactor" action="Create reactor" run={run} ready={!!name.trim()}>
      <TextInput label="Name" placeholder="Charge at Acme Pay" value={name} onChange={(e) => setName(e.currentTarget.value)} data-autofocus />
      <Select label="Acts as" description="The application whose access the code has when it reads tokens itself" placeholder="Nobody" clearable clearButtonProps={{ 'aria-label': 'Nobody' }} value={app} onChange={setApp} data={(apps ?? []).filter((a) => a.type !== 'management').map((a) => ({ value: a.id, label: a.name }))} />
      <div className="dim">It begins with an example that returns the last four digits of a card. You change it on its page.</div>
    </Sheet>
  );
}

export default function Reactors() {
  const me = useMe(), list = useReactors();
  const [params] = useSearchParams();
  const [creating, setCreating] = useState(params.has('new'));
  return (
    <>
      <PageHead title="Reactors" about="Your own code, run in the vault with real values. Callers see what it returns, and not the values." actions={<><Curl path="/reactors" />{me.may('reactor:create') && <Commit leftSection={<Icon name="plus" size={14} />} onClick={() => setCreating(true)}>New reactor</Commit>}</>} />
      <Panel label="Reactors">{!me.may('reactor:read') ? <Closed permission="reactor:read" /> : list.isError ? <div style={{ padding: 14 }}><Failed error={list.error} retry={() => list.refetch()} /></div> : !list.data ? <Lines /> : list.data.length === 0 ? <Empty icon="reactor" title="No reactors yet">When your own systems must not see a value, bring the code to the value: compute a score, call a bank, format a file.</Empty> : (
        <div className="scroll"><table className="t"><thead><tr><th>Name</th><th className="wide">Acts as</th><th className="wide">Configuration</th><th className="wide">Code</th><th className="right">Changed</th></tr></thead><tbody>{list.data.map((r) => <GoRow key={r.id} to={`/reactors/${r.id}`}><td><Link to={`/reactors/${r.id}`} style={{ color: 'var(--ink)', fontWeight: 500 }}>{r.name}</Link></td><td className="wide">{r.application ? <Who id={r.application.id} /> : <span className="faint">nobody</span>}</td><td className="wide mono dim">{Object.keys(r.configuration).join(', ') || '–'}</td><td className="wide num dim">{r.code.split('\n').length} lines</td><td className="right"><When at={r.modified_at ?? r.created_at} /></td></GoRow>)}</tbody></table></div>)}</Panel>
      <Create opened={creating} close={() => setCreating(false)} />
    </>
  );
}
