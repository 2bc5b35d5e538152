import { Button, Switch, TextInput } from '@mantine/core';
import { useQuery, useQueryClient } from '@tanstack/react-query';
import { useEffect, useState } from 'react';
import { call, type Tenant } from '../api';
import { useMe } from '../session';
import { Closed, Commit, Copy, Curl, Failed, Lines, Note, Once, PageHead, Panel, Saved, When } from '../ui';

const switches: [string, string, string][] = [
  ['fingerprint_tokens', 'Fingerprint tokens', 'Equal values get equal fingerprints, so duplicates can be found without their values.'],
  ['masked_fingerprints', 'Show fingerprints with the mask', 'Callers that see the mask see the fingerprint too.'],
  ['deduplicate_tokens', 'Deduplicate tokens', 'Creating a value a second time returns the token that there is.'],
  ['blind_deduplication', 'Deduplicate for callers that may not see the duplicate', 'They learn that the value was stored before.'],
  ['disable_ephemeral_proxy', 'Only proxies that are defined', 'Requests that name their destination themselves are refused.'],
  ['disable_anonymous_detokenization', 'An API key for every value', 'Proxies that require no API key send no values.'],
  ['uncapped_sessions', 'Sessions may exceed their application', 'A session may get more than the application that authorized it.'],
  ['numeric_ids', 'Accept ids that are numbers', 'Ids that look like card numbers are refused in any case.'],
];

function Callbacks({ may }: { may: boolean }) {
  const [secret, setSecret] = useState<string>(), [error, setError] = useState<unknown>(), [busy, setBusy] = useState(false);
  const rotate = async () => { setBusy(true); setError(undefined); try { setSecret((await call<{ secret: string }>('POST', '/tenants/self/callback-secret')).secret); } catch (e) { setError(e); } finally { setBusy(false); } };
  return (
    <Panel title="Secret that signs callbacks" pad>
      <div className="stack"><div className="dim">Receivers check with it that a callback of a reactor comes from this vault. The secret that it replaces goes on signing for 24 hours.</div>{error !== undefined && <Failed error={error} />}{may && <div><Button variant="default" loading={busy} onClick={rotate}>Replace the secret</Button></div>}</div>
      <Once secret={secret} close={() => setSecret(undefined)} title="The new secret" />
    </Panel>
  );
}

export default function Settings() {
  const me = useMe(), client = useQueryClient();
  const got = useQuery({ queryKey: ['tenant'], enabled: me.may('tenant:read'), queryFn: () => call<Tenant>('GET', '/tenants/self') });
  const [name, setName] = useState(''), [settings, setSettings] = useState<Record<string, string>>({}), [error, setError] = useState<unknown>(), [busy, setBusy] = useState(false), [saved, setSaved] = useState(false);
  const t = got.data, may = me.may('tenant:update');
  useEffect(() => { if (t) { setName(t.name); setSettings(t.settings as Record<string, string>); } }, [t]);
  if (!me.may('tenant:read')) return <><PageHead title="Settings" /><Panel label="Settings"><Closed permission="tenant:read" /></Panel></>;
  if (got.isError) return <Failed error={got.error} retry={() => got.refetch()} />;
  if (!t) return <Lines n={8} />;
  const dirty = name !== t.name || JSON.stringify(settings) !== JSON.stringify(t.settings);
  const set = (k: string, v: string) => { setSaved(false); setSettings({ ...settings, [k]: v }); };
  const save = async () => { setBusy(true); setError(undefined); try { await call('PUT', '/tenants/self', { name: name.trim(), settings }); setSaved(true); await client.invalidateQueries({ queryKey: ['tenant'] }); } catch (e) { setError(e); } finally { setBusy(false); } };
  const known = switches.filter(([k]) => k in settings);
  const others = Object.keys(settings).filter((k) => k !== 'cvc_retention' && !switches.some(([s]) => s === k));
  return (
    <>
      <PageHead title="Settings" about="What counts for the whole tenant." actions={<><Curl path="/tenants/self" />{saved && !dirty && <Saved />}{may && <Commit disabled={!dirty || !name.trim()} loading={busy} onClick={save}>Save changes</Commit>}</>} />
      {error !== undefined && <div style={{ marginBottom: 12 }}><Failed error={error} /></div>}
      <fieldset disabled={!may} className="plain grid two side-320">
        <div className="stack" style={{ gap: 16 }}>
          <Panel title="Tenant" pad><div className="stack"><TextInput label="Name" value={name} onChange={(e) => { setSaved(false); setName(e.currentTarget.value); }} maw={360} />{'cvc_retention' in settings && <TextInput label="Security codes are gone after" description="At most an hour, such as 30m" value={settings.cvc_retention} onChange={(e) => set('cvc_retention', e.currentTarget.value)} maw={360} />}</div></Panel>
          <Panel title="Behaviour">{known.map(([k, label, about]) => <div key={k} className="listrow"><Switch checked={settings[k] === 'true'} disabled={!may} onChange={(e) => set(k, String(e.currentTarget.checked))} label={<b style={{ fontWeight: 500 }}>{label}</b>} description={about} /></div>)}{others.map((k) => <div key={k} className="listrow"><TextInput label={k} value={settings[k]} onChange={(e) => set(k, e.currentTarget.value)} maw={360} /></div>)}</Panel>
        </div>
        <div className="stack" style={{ gap: 16 }}>
          <Panel title="About" pad><dl className="dl" style={{ gridTemplateColumns: '72px minmax(0, 1fr)' }}><dt>Id</dt><dd className="row" style={{ gap: 2 }}><span className="mono clip">{t.id}</span><Copy text={t.id} label="Copy the id" /></dd><dt>Made</dt><dd><When at={t.created_at} /></dd></dl></Panel>
          <Callbacks may={may} />
          <Note>Deleting a tenant, its keys and all its tokens takes the command <span className="mono">tokenkeep tenant delete</span>.</Note>
        </div>
      </fieldset>
    </>
  );
}
