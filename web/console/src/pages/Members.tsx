import { Button, Checkbox, Modal, Select, Tabs, Textarea, TextInput } from '@mantine/core';
import { useQueryClient } from '@tanstack/react-query';
import { useEffect, useState } from 'react';
import { call, isMissing, part, sight } from '../api';
import { useMembers, useOptional, useRoles } from '../data';
import { Icon } from '../icons';
import { useMe, type Member, type Role } from '../session';
import { Closed, Commit, Curl, Danger, Empty, Exposure, Failed, Lines, NotYet, PageHead, Panel, Sheet, When } from '../ui';
import { areas, inWords, permission as words } from '../words';
import { bare, draftRules, RuleList, tokenPermissions, type DraftRule } from './Rules';

const nameOf = (m: Member) => m.name || m.email || m.id;

function Invite({ opened, close, roles }: { opened: boolean; close: () => void; roles: Role[] }) {
  const client = useQueryClient();
  const [email, setEmail] = useState(''), [name, setName] = useState(''), [role, setRole] = useState<string | null>('support');
  useEffect(() => { if (opened) { setEmail(''); setName(''); } }, [opened]);
  const chosen = roles.find((r) => r.name === role);
  const run = async () => { await call('POST', '/members', { email: email.trim(), name: name.trim() || email.trim().split('@')[0], role }); await client.invalidateQueries({ queryKey: ['/members'] }); close(); };
  return (
    <Sheet opened={opened} close={close} title="New member" action="Add member" run={run} ready={!!email.trim() && !!role}>
      <TextInput label="Email" type="email" description="They sign in with this address" value={email} onChange={(e) => setEmail(e.currentTarget.value)} data-autofocus />
      <TextInput label="Name" value={name} onChange={(e) => setName(e.currentTarget.value)} />
      <Select label="Role" allowDeselect={false} value={role} onChange={setRole} data={roles.map((r) => r.name)} />
      {chosen && <RoleWords role={chosen} />}
    </Sheet>
  );
}

/** RoleWords says in words what a role may do. */
function RoleWords({ role }: { role: Role }) {
  const sees = sight({ permissions: role.permissions ?? [], rules: role.rules ?? [] });
  return (
    <div className="stack" style={{ gap: 6 }}>
      {role.description && <div>{role.description}</div>}
      <div className="row wrap" style={{ gap: 4 }}>{sees === 'none' ? <span className="chip">sees no tokens</span> : <Exposure of={sees} />}{(role.permissions ?? []).slice(0, 40).map((p) => <span key={p} className="chip line">{inWords(p)}</span>)}</div>
    </div>
  );
}

function Change({ member, close, roles }: { member?: Member; close: () => void; roles: Role[] }) {
  const client = useQueryClient();
  const [role, setRole] = useState<string | null>(null), [name, setName] = useState(''), [active, setActive] = useState(true);
  useEffect(() => { if (member) { setRole(member.role ?? null); setName(member.name ?? ''); setActive(member.state !== 'disabled'); } }, [member]);
  const run = async () => { await call('PATCH', `/members/${member!.id}`, { role, name: name.trim(), state: active ? 'active' : 'disabled' }); await client.invalidateQueries({ queryKey: ['/members'] }); close(); };
  const chosen = roles.find((r) => r.name === role);
  return (
    <Sheet opened={!!member} close={close} title="Change member" action="Save" run={run} ready={!!role}>
      <TextInput label="Name" value={name} onChange={(e) => setName(e.currentTarget.value)} />
      <Select label="Role" description="It counts from their next request" allowDeselect={false} value={role} onChange={setRole} data={roles.map((r) => r.name)} />
      {chosen && <RoleWords role={chosen} />}
      <Checkbox checked={active} onChange={(e) => setActive(e.currentTarget.checked)} label="May sign in" description="Without it, they are signed out everywhere" />
    </Sheet>
  );
}

interface SignedIn { id: string; created_at: string; last_used_at: string; expires_at: string; client_address?: string; provider?: string }

/** SignIns lists the browsers in which a member is signed in, and ends them. */
function SignIns({ member, close }: { member?: Member; close: () => void }) {
  const me = useMe(), client = useQueryClient();
  const path = `/members/${member?.id}/sessions`;
  const got = useOptional<SignedIn[]>(path, !!member);
  const [error, setError] = useState<unknown>();
  const end = async (id: string) => { setError(undefined); try { await call('DELETE', `/members/sessions/${id}`); await client.invalidateQueries({ queryKey: [path] }); } catch (e) { setError(e); } };
  return (
    <Modal opened={!!member} onClose={close} size={560} title={<b style={{ fontWeight: 600 }}>Where {member && nameOf(member)} is signed in</b>} closeButtonProps={{ 'aria-label': 'Close' }}>
      {error !== undefined && <Failed error={error} />}
      {got.isError ? <Failed error={got.error} /> : !got.data ? <Lines n={2} /> : got.data.length === 0 ? <Empty icon="session" title="Nowhere" /> : <div className="panel list">{got.data.map((s) => <div key={s.id} className="row listrow"><div className="grow"><div>{s.provider ?? 'By a link'} from <span className="mono">{s.client_address ?? 'an unknown address'}</span></div><div className="faint" style={{ fontSize: 12 }}>used <When at={s.last_used_at} />, ends <When at={s.expires_at} /></div></div>{me.may('member:update') && <Button variant="default" aria-label={`Sign out ${s.id}`} onClick={() => end(s.id)}>Sign out</Button>}</div>)}</div>}
    </Modal>
  );
}

/** RoleForm creates a role, or changes one of the tenant. */
function RoleForm({ role, opened, close }: { role?: Role; opened: boolean; close: () => void }) {
  const client = useQueryClient();
  const [name, setName] = useState(''), [about, setAbout] = useState(''), [permissions, setPermissions] = useState<string[]>([]), [rules, setRules] = useState<DraftRule[]>([]);
  useEffect(() => { if (opened) { setName(role?.name ?? ''); setAbout(role?.description ?? ''); setPermissions(role?.permissions ?? []); setRules(draftRules(role?.rules ?? [])); } }, [opened, role]);
  const toggle = (p: string) => setPermissions(permissions.includes(p) ? permissions.filter((x) => x !== p) : [...permissions, p]);
  const run = async () => {
    const body = { description: about.trim() || undefined, permissions, rules: bare(rules) };
    await (role ? call('PUT', `/roles/${part(role.name)}`, body) : call('POST', '/roles', { ...body, name: name.trim() }));
    await client.invalidateQueries({ queryKey: ['/roles'] });
    close();
  };
  return (
    <Sheet opened={opened} close={close} size={720} title={role ? `Change ${role.name}` : 'New role'} action={role ? 'Save' : 'Create role'} run={run} ready={!!name.trim()}>
      <TextInput label="Name" disabled={!!role} value={name} onChange={(e) => setName(e.currentTarget.value)} data-autofocus />
      <Textarea label="What it is for" value={about} onChange={(e) => setAbout(e.currentTarget.value)} />
      <div className="panel"><header><h2>Access rules</h2></header><RuleList rules={rules} change={setRules} /></div>
      <div className="grid permissions">{tokenPermissions.map((p) => <Checkbox key={p} checked={permissions.includes(p)} onChange={() => toggle(p)} label={words[p]!.short} description={words[p]!.long} />)}</div>
      <div className="grid permissions">{areas.flatMap((a) => Object.entries(a.verbs).map(([verb, label]) => <Checkbox key={a.area + verb} checked={permissions.includes(`${a.area}:${verb}`)} onChange={() => toggle(`${a.area}:${verb}`)} label={`${label} ${a.label.toLowerCase()}`} />))}</div>
    </Sheet>
  );
}

export default function Members() {
  const me = useMe(), client = useQueryClient();
  const members = useMembers(), roles = useRoles();
  const [inviting, setInviting] = useState(false), [changing, setChanging] = useState<Member>(), [doomed, setDoomed] = useState<Member>(), [where, setWhere] = useState<Member>(), [editing, setEditing] = useState<Role | 'new'>();
  const manage = me.may('member:update');
  return (
    <>
      <PageHead title="Members" about="People who sign in here. A role decides what they see and do, and each thing they do is in the audit log under their name." actions={<><Curl path="/members" />{me.may('member:create') && <Commit leftSection={<Icon name="plus" size={14} />} onClick={() => setInviting(true)}>New member</Commit>}</>} />
      <Panel label="Members and roles">
        {!me.may('member:read') ? <Closed permission="member:read" /> : (
          <Tabs defaultValue="members" styles={{ list: { padding: '0 8px' }, tab: { padding: '12px 10px', fontSize: 13 } }}>
            <Tabs.List><Tabs.Tab value="members">Members</Tabs.Tab><Tabs.Tab value="roles">Roles</Tabs.Tab></Tabs.List>
            <Tabs.Panel value="members">
              {members.isError ? isMissing(members.error) ? <NotYet what="members" /> : <div style={{ padding: 14 }}><Failed error={members.error} retry={() => members.refetch()} /></div> : !members.data ? <Lines /> : members.data.length === 0 ? <Empty icon="users" title="No members yet">Add people by their email address.</Empty> : (
                <div className="scroll"><table className="t"><thead><tr><th>Name</th><th className="wide">Email</th><th>Role</th><th className="wide">State</th><th className="wide">Last seen</th><th aria-label="Actions" /></tr></thead><tbody>
                  {members.data.map((m) => <tr key={m.id}><td style={{ fontWeight: 500 }}>{nameOf(m)}{m.id === me.member.id && <span className="chip line" style={{ marginLeft: 6 }}>you</span>}</td><td className="wide dim">{m.email}</td><td>{m.role}</td><td className="wide"><span className={`chip ${m.state === 'active' ? 'good' : ''}`}>{m.state ?? '–'}</span></td><td className="wide">{m.last_seen_at ? <When at={m.last_seen_at} /> : <span className="faint">never</span>}</td>
                    <td className="right"><span className="row" style={{ justifyContent: 'flex-end', gap: 4 }}><Button variant="subtle" color="gray" className="quiet wide" aria-label={`Where ${nameOf(m)} is signed in`} onClick={() => setWhere(m)}>Signed in…</Button>{manage && <Button variant="default" aria-label={`Change ${nameOf(m)}`} onClick={() => setChanging(m)}>Change…</Button>}{me.may('member:delete') && m.id !== me.member.id && <Button variant="subtle" color="red" className="danger" aria-label={`Remove ${nameOf(m)}`} onClick={() => setDoomed(m)}>Remove…</Button>}</span></td></tr>)}
                </tbody></table></div>
              )}
            </Tabs.Panel>
            <Tabs.Panel value="roles">
              {roles.isError ? isMissing(roles.error) ? <NotYet what="roles" /> : <div style={{ padding: 14 }}><Failed error={roles.error} /></div> : !roles.data ? <Lines /> : roles.data.map((r) => <div key={r.name} className="row listrow" style={{ alignItems: 'flex-start' }}><b style={{ fontWeight: 500, width: 110, flex: 'none' }}>{r.name}</b><div className="grow"><RoleWords role={r} /></div>{manage && !r.built_in && <Button variant="default" aria-label={`Change role ${r.name}`} onClick={() => setEditing(r)}>Change…</Button>}</div>)}
              {manage && roles.data && <div style={{ padding: '8px 14px' }}><Button variant="default" leftSection={<Icon name="plus" size={14} />} onClick={() => setEditing('new')}>New role</Button></div>}
            </Tabs.Panel>
          </Tabs>
        )}
      </Panel>
      <Invite opened={inviting} close={() => setInviting(false)} roles={roles.data ?? []} />
      <Change member={changing} close={() => setChanging(undefined)} roles={roles.data ?? []} />
      <SignIns member={where} close={() => setWhere(undefined)} />
      <RoleForm opened={!!editing} role={editing === 'new' ? undefined : editing} close={() => setEditing(undefined)} />
      <Danger opened={!!doomed} close={() => setDoomed(undefined)} title={`Remove ${doomed ? nameOf(doomed) : ''}?`} name={doomed?.email ?? ''} action="Remove member" run={async () => { await call('DELETE', `/members/${doomed!.id}`); await client.invalidateQueries({ queryKey: ['/members'] }); }}>They are signed out at once, and cannot sign in again. What they did stays in the audit log.</Danger>
    </>
  );
}
