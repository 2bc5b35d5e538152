import { Button, Checkbox, Modal, Select, SegmentedControl, Textarea, TextInput } from '@mantine/core';
import { useDebouncedValue } from '@mantine/hooks';
import { useQuery, useQueryClient } from '@tanstack/react-query';
import { useEffect, useMemo, useState } from 'react';
import { useNavigate, useParams } from 'react-router';
import { call, type Application, type Explanation, type Key, type Transform } from '../api';
import { useOptional } from '../data';
import { Icon } from '../icons';
import { useMe } from '../session';
import { ago, Commit, Copy, Curl, Danger, Empty, Exposure, Failed, Lines, Note, Once, PageHead, Panel, Path, Saved, When, Who } from '../ui';
import { areas, inWords, kind, permission as words } from '../words';
import { bare, draftRules, isPath, RuleList, tokenPermissions, type DraftRule } from './Rules';

type Draft = { name: string; permissions: string[]; rules: DraftRule[]; origins: string };
const draftOf = (a: Application): Draft => ({ name: a.name, permissions: a.permissions, origins: (a.allowed_origins ?? []).join('\n'), rules: draftRules(a.rules) });
const originsOf = (d: Draft) => d.origins.split(/\s+/).filter(Boolean);
const essence = (d: Draft) => JSON.stringify([d.name, [...d.permissions].sort(), bare(d.rules), originsOf(d)]);
const grantOf = (a: Application, d: Draft) => ({ type: a.type, permissions: d.permissions, rules: bare(d.rules) });

const changes = ['token:create', 'token:update', 'token:delete'];
const verdict = (e: Explanation) => (!e.allowed ? 'Refused' : changes.includes(e.permission) ? 'Allowed' : e.transform === 'reveal' ? 'Allowed, shows the value' : e.transform === 'mask' ? 'Allowed, shows the mask' : 'Allowed, shows nothing');

function Tester({ app, draft, dirty, told }: { app: Application; draft: Draft; dirty: boolean; told: (e?: Explanation) => void }) {
  const [permission, setPermission] = useState('token:read'), [how, setHow] = useState('container'), [container, setContainer] = useState('/pci/high/'), [token, setToken] = useState('');
  const [grant] = useDebouncedValue(grantOf(app, draft), 250);
  const [target] = useDebouncedValue(how === 'container' ? { containers: [container] } : { token_id: token }, 250);
  const valid = how === 'container' ? isPath(container) : token.length > 2;
  const ask = (who: object) => call<Explanation>('POST', '/access/explain', { ...who, permission, ...target });
  const drafted = useQuery({ queryKey: ['explain', 'draft', grant, permission, target], queryFn: () => ask({ proposed: grant }), enabled: valid, placeholderData: (p) => p, retry: false });
  const saved = useQuery({ queryKey: ['explain', app.id, app.modified_at, permission, target], queryFn: () => ask({ application_id: app.id }), enabled: valid && dirty, retry: false });
  useEffect(() => told(valid ? drafted.data : undefined), [drafted.data, valid]);
  const e = drafted.data;
  const plain = e?.decided_by && e.decided_by.rule === undefined;
  const mono = { input: { fontFamily: 'var(--mantine-font-family-monospace)' } };
  return (
    <Panel title="Try it" right={<span className="dim" style={{ fontSize: 12 }}>nothing is read</span>} pad>
      <div className="stack">
        <Select label="May it" value={permission} onChange={(v) => v && setPermission(v)} allowDeselect={false} data={tokenPermissions.map((p) => ({ value: p, label: words[p]!.short.toLowerCase() }))} />
        <div><SegmentedControl fullWidth aria-label="What to try it on" value={how} onChange={setHow} data={[{ value: 'container', label: 'tokens in a container' }, { value: 'token', label: 'one token' }]} mb={6} />
          {how === 'container' ? <TextInput aria-label="Container to try" value={container} onChange={(x) => setContainer(x.currentTarget.value)} styles={mono} /> : <TextInput aria-label="Token to try" placeholder="The id of a token" value={token} onChange={(x) => setToken(x.currentTarget.value)} styles={mono} />}</div>
        {drafted.isError ? <Failed error={drafted.error} /> : e && valid && (
          <div className={`verdictbox ${!e.allowed ? 'bad' : e.transform ?? 'mask'}`} aria-live="polite">
            <b>{verdict(e)}</b>
            <div style={{ fontSize: 12.5 }}>{plain ? (e.allowed ? 'by a plain permission' : e.decided_by!.reason) : e.decided_by?.rule !== undefined ? `Rule ${e.decided_by.rule + 1} decides` : ''}{e.containers && how === 'token' && <> for {e.containers.join(' and ')}</>}</div>
          </div>
        )}
        {dirty && saved.data && e && (verdict(saved.data) !== verdict(e) ? <Note tone="warn"><b style={{ fontWeight: 600 }}>Your change makes a difference.</b> Before: {verdict(saved.data).toLowerCase()}. After: {verdict(e).toLowerCase()}.</Note> : <span className="dim" style={{ fontSize: 12 }}>The same as before your changes.</span>)}
      </div>
    </Panel>
  );
}

interface Difference { container: string; permission: string; before: Explanation; after: Explanation }
const weight = (e: Explanation) => (e.allowed ? 1 + ['redact', 'mask', 'reveal'].indexOf(e.transform ?? 'mask') : 0);

/** differences asks the server what a change does, for the containers that rules name and the permissions that changed. */
async function differences(app: Application, draft: Draft): Promise<Difference[]> {
  const before = grantOf(app, draftOf(app)), after = grantOf(app, draft);
  const containers = [...new Set([...before.rules, ...after.rules].map((r) => r.container).filter(isPath).concat('/'))].slice(0, 8);
  const touched = tokenPermissions.filter((p) => JSON.stringify([before.permissions.includes(p), before.rules.filter((r) => r.permissions.includes(p))]) !== JSON.stringify([after.permissions.includes(p), after.rules.filter((r) => r.permissions.includes(p))]));
  const ask = (proposed: object, permission: string, container: string) => call<Explanation>('POST', '/access/explain', { proposed, permission, containers: [container] });
  const out: Difference[] = [];
  for (const permission of touched) for (const container of containers) {
    const [b, a] = await Promise.all([ask(before, permission, container), ask(after, permission, container)]);
    if (verdict(b) !== verdict(a)) out.push({ container, permission, before: b, after: a });
  }
  return out.sort((x, y) => weight(y.after) - weight(y.before) - (weight(x.after) - weight(x.before)));
}

const Outcome = ({ e }: { e: Explanation }) => (!e.allowed ? <span className="chip bad">Refused</span> : changes.includes(e.permission) ? <span className="chip good">Allowed</span> : <Exposure of={(e.transform ?? 'mask') as Transform} />);

/** Review shows what a change of access means before it is saved. */
function Review({ app, draft, close, save }: { app: Application; draft: Draft; close: () => void; save: () => Promise<void> }) {
  const [busy, setBusy] = useState(false), [error, setError] = useState<unknown>();
  const tokens = app.type !== 'management';
  const diff = useQuery({ queryKey: ['diff', app.id, essence(draft)], queryFn: () => differences(app, draft), enabled: tokens, gcTime: 0, retry: false });
  const gained = draft.permissions.filter((p) => !app.permissions.includes(p)), lost = app.permissions.filter((p) => !draft.permissions.includes(p));
  const commit = async () => { setBusy(true); setError(undefined); try { await save(); close(); } catch (e) { setError(e); } finally { setBusy(false); } };
  return (
    <Modal opened onClose={close} size={620} title={<b style={{ fontWeight: 600 }}>What changes for {app.name}</b>} closeButtonProps={{ 'aria-label': 'Close' }}>
      <div className="stack">
        {tokens ? diff.isError ? <Failed error={diff.error} /> : !diff.data ? <Lines n={4} /> : diff.data.length ? (
          <div className="panel scroll"><table className="t"><thead><tr><th>May</th><th>Tokens in</th><th>Before</th><th>After</th></tr></thead><tbody>{diff.data.map((d) => <tr key={d.container + d.permission}><td>{inWords(d.permission).toLowerCase()}</td><td><Path>{d.container}</Path></td><td><Outcome e={d.before} /></td><td><Outcome e={d.after} /></td></tr>)}</tbody></table></div>
        ) : <Note icon="check" tone="good">Access to tokens in the containers of these rules stays as it is.</Note>
          : gained.length + lost.length ? <div className="panel list">{gained.map((p) => <div key={p} className="row listrow"><span className="chip good">gets</span>{inWords(p)}</div>)}{lost.map((p) => <div key={p} className="row listrow"><span className="chip bad">loses</span>{inWords(p)}</div>)}</div> : <Note>Its permissions stay as they are.</Note>}
        {error !== undefined && <Failed error={error} />}
        <div className="row"><span className="dim grow" style={{ fontSize: 12 }}>It counts for the next request of each key.</span><Button variant="default" onClick={close}>Go back</Button><Commit loading={busy} onClick={commit}>Save</Commit></div>
      </div>
    </Modal>
  );
}

function Keys({ app, mayChange }: { app: Application; mayChange: boolean }) {
  const client = useQueryClient(), me = useMe();
  const [secret, setSecret] = useState<string>(), [doomed, setDoomed] = useState<Key>(), [error, setError] = useState<unknown>(), [busy, setBusy] = useState(false);
  const report = useOptional<{ data: { id: string; last_used_on?: string }[] }>('/reports/keys?size=100', me.may('application:read'));
  const used = (k: Key) => k.last_used_on ?? report.data?.data.find((x) => x.id === k.id)?.last_used_on;
  const refresh = () => Promise.all([['application', app.id], ['/applications'], ['/reports/keys?size=100']].map((queryKey) => client.invalidateQueries({ queryKey })));
  const make = async () => { setBusy(true); setError(undefined); try { setSecret((await call<Key>('POST', `/applications/${app.id}/keys`)).key); await refresh(); } catch (e) { setError(e); } finally { setBusy(false); } };
  return (
    <Panel title="Keys" right={<span className="dim num" style={{ fontSize: 12 }}>{app.keys.length} of 3</span>} foot={mayChange ? <><span className="grow">To rotate, make a key, switch to it, then revoke the old one.</span><Button variant="default" loading={busy} disabled={app.keys.length >= 3} onClick={make}>New key</Button></> : <span>A key is shown once, when it is made.</span>}>
      {error !== undefined && <div style={{ padding: 12 }}><Failed error={error} /></div>}
      {app.keys.length === 0 ? <Empty icon="app" title="No keys" /> : app.keys.map((k) => (
        <div key={k.id} className="row listrow">
          <div className="grow"><div className="mono clip">{k.prefix.slice(0, 12)}…{k.prefix.slice(-6)}•••••</div><div className="faint" style={{ fontSize: 12 }}>made <When at={k.created_at} />{used(k) ? <>, last used {used(k)}</> : report.data ? ', not used yet' : ''}</div></div>
          {mayChange ? <Button variant="subtle" color="red" className="danger" size="compact-xs" aria-label={`Revoke key ${k.version}`} onClick={() => setDoomed(k)}>Revoke…</Button> : <span className="chip line">key {k.version}</span>}
        </div>
      ))}
      <Once secret={secret} close={() => setSecret(undefined)} title={`A new key for ${app.name}`} />
      <Danger opened={!!doomed} close={() => setDoomed(undefined)} title={`Revoke key ${doomed?.version}?`} name={`key ${doomed?.version}`} action="Revoke key" run={async () => { await call('DELETE', `/applications/${app.id}/keys/${doomed!.id}`); await refresh(); }}>Requests with this key fail at once, and the sessions that it opened end. This cannot be undone.</Danger>
    </Panel>
  );
}

export default function ApplicationPage() {
  const { id } = useParams();
  const me = useMe(), client = useQueryClient(), go = useNavigate();
  const got = useQuery({ queryKey: ['application', id], queryFn: () => call<Application>('GET', `/applications/${id}`) });
  const a = got.data;
  const [draft, setDraft] = useState<Draft>(), [told, setTold] = useState<Explanation>(), [saved, setSaved] = useState(false), [reviewing, setReviewing] = useState(false), [doomed, setDoomed] = useState(false);
  useEffect(() => { if (a) setDraft(draftOf(a)); }, [a]);
  const dirty = useMemo(() => !!a && !!draft && essence(draft) !== essence(draftOf(a)), [a, draft]);
  if (got.isError) return <Failed error={got.error} retry={() => got.refetch()} />;
  if (!a || !draft) return <Lines n={8} />;
  const set = (d: Partial<Draft>) => { setSaved(false); setDraft({ ...draft, ...d }); };
  const toggle = (p: string) => set({ permissions: draft.permissions.includes(p) ? draft.permissions.filter((x) => x !== p) : [...draft.permissions, p] });
  const save = async () => {
    await call('PUT', `/applications/${a.id}`, { name: draft.name, permissions: draft.permissions, rules: bare(draft.rules), expires_at: a.expires_at, ...(a.type === 'public' ? { allowed_origins: originsOf(draft) } : {}) });
    setSaved(true);
    await Promise.all([client.invalidateQueries({ queryKey: ['application', id] }), client.invalidateQueries({ queryKey: ['/applications'] })]);
  };
  const may = a.type === 'public' ? ['token:create', 'token:update'] : tokenPermissions;
  const change = me.may('application:update');
  const over = a.expires_at && Date.parse(a.expires_at) < Date.now();
  return (
    <>
      <PageHead crumb={{ to: '/applications', label: 'Applications' }} title={a.name} tags={<><span className="chip line">{kind[a.type]!.label}</span>{a.expires_at && <span className={`chip ${over ? 'bad' : 'warn'}`}>{over ? 'expired' : 'expires'} {ago(a.expires_at)}</span>}</>} about={kind[a.type]!.for.replace(/^./, (c) => c.toUpperCase()) + '.'}
        actions={<><Curl path={`/applications/${a.id}`} />{dirty && <Button variant="subtle" color="gray" className="quiet" onClick={() => setDraft(draftOf(a))}>Discard</Button>}{saved && !dirty && <Saved>Saved, counts from now on</Saved>}{change && <Commit disabled={!dirty || !draft.name.trim()} onClick={() => setReviewing(true)}>Save changes…</Commit>}</>} />
      <fieldset disabled={!change} className="plain grid two side-320">
        <div className="stack" style={{ gap: 16 }}>
          {a.type !== 'management' ? (
            <>
              {a.type === 'private' && <Panel title="Access rules" right={<span className="dim" style={{ fontSize: 12 }}>the first that matches decides</span>}><RuleList rules={draft.rules} change={(rules) => set({ rules })} steps={told?.steps} /></Panel>}
              <Panel title={a.type === 'private' ? 'Then, for all other tokens' : 'What it may do'} pad>
                <div className="grid permissions">{tokenPermissions.filter((p) => may.includes(p)).map((p) => <Checkbox key={p} checked={draft.permissions.includes(p)} onChange={() => toggle(p)} label={<span style={{ fontWeight: 500 }}>{words[p]!.short}{words[p]!.risky && <span style={{ color: 'var(--warn)', fontWeight: 400 }}> · {words[p]!.risky}</span>}</span>} description={words[p]!.long} />)}</div>
              </Panel>
              {a.type === 'public' && <Panel title="Pages that may embed its card fields" pad><Textarea aria-label="Allowed origins" autosize minRows={2} placeholder="https://shop.example" value={draft.origins} onChange={(e) => set({ origins: e.currentTarget.value })} /><div className="dim" style={{ fontSize: 12, marginTop: 6 }}>One origin per line. Without any, no page may.</div></Panel>}
            </>
          ) : (
            <Panel title="What it may administer">
              <div className="scroll"><table className="t"><thead><tr><th>Area</th>{['See', 'Create', 'Change', 'Delete'].map((v) => <th key={v} style={{ textAlign: 'center', width: 80 }}>{v}</th>)}</tr></thead><tbody>{areas.map((x) => <tr key={x.area}><td><div style={{ fontWeight: 500 }}>{x.label}</div>{x.hint && <div className="faint" style={{ fontSize: 12 }}>{x.hint}</div>}</td>{['read', 'create', 'update', 'delete'].map((v) => <td key={v}>{v in x.verbs ? <Checkbox aria-label={`${x.verbs[v]} ${x.label.toLowerCase()}`} checked={draft.permissions.includes(`${x.area}:${v}`)} onChange={() => toggle(`${x.area}:${v}`)} styles={{ body: { justifyContent: 'center' } }} /> : null}</td>)}</tr>)}</tbody></table></div>
            </Panel>
          )}
        </div>
        <div className="stack" style={{ gap: 16 }}>
          {a.type === 'private' && <Tester app={a} draft={draft} dirty={dirty} told={setTold} />}
          <Keys app={a} mayChange={change} />
          <Panel title="About" pad>
            <TextInput label="Name" value={draft.name} onChange={(e) => set({ name: e.currentTarget.value })} mb={10} />
            <dl className="dl" style={{ gridTemplateColumns: '72px minmax(0, 1fr)' }}><dt>Id</dt><dd className="row" style={{ gap: 2 }}><span className="mono clip">{a.id}</span><Copy text={a.id} label="Copy the id" /></dd><dt>Made</dt><dd><When at={a.created_at} /> by <Who id={a.created_by} system /></dd>{a.modified_at && <><dt>Changed</dt><dd><When at={a.modified_at} /> by <Who id={a.modified_by} system /></dd></>}</dl>
            {me.may('application:delete') && <Button variant="subtle" color="red" className="danger" mt={10} ml={-10} leftSection={<Icon name="trash" size={14} />} onClick={() => setDoomed(true)}>Delete this application…</Button>}
          </Panel>
        </div>
      </fieldset>
      {reviewing && <Review app={a} draft={draft} close={() => setReviewing(false)} save={save} />}
      <Danger opened={doomed} close={() => setDoomed(false)} title={`Delete ${a.name}?`} name={a.name} action="Delete application" run={async () => { await call('DELETE', `/applications/${a.id}`); await client.invalidateQueries({ queryKey: ['/applications'] }); go('/applications'); }}>
        Its {a.keys.length} {a.keys.length === 1 ? 'key stops' : 'keys stop'} working at once, and the sessions that it authorized end. Tokens that it made stay. This cannot be undone.
      </Danger>
    </>
  );
}
