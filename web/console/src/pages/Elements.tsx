import { Select, Textarea } from '@mantine/core';
import { useEffect, useRef, useState } from 'react';
import { Link } from 'react-router';
import { useApps } from '../data';
import { useMe } from '../session';
import { Closed, Copy, Empty, Lines, Note, PageHead, Panel } from '../ui';

const kinds = [{ value: 'card', label: 'Card in one line' }, { value: 'bank', label: 'Bank account' }, { value: 'iban', label: 'IBAN' }, { value: 'text', label: 'Any text' }];

/** snippet is what a shop's page contains. */
const snippet = (origin: string, key: string, kind: string, loader: { file: string; integrity: string }) => `<script src="${origin}/elements/v1/${loader.file}"
  integrity="${loader.integrity}" crossorigin="anonymous"></script>
<div id="${kind}"></div>
<script type="module">
  const fields = Tokenkeep.elements({ key: '${key}', vault: '${origin}' });
  fields.create('${kind}').mount('#${kind}');
</script>`;

/** Preview shows the frame itself. It works for pages that the application allows, this one included. */
function Preview({ src }: { src: string }) {
  const frame = useRef<HTMLIFrameElement>(null);
  useEffect(() => { if (frame.current) frame.current.src = src; }, [src]);
  return <iframe ref={frame} title="Card fields" className="preview" sandbox="allow-scripts allow-same-origin" />;
}

export default function Elements() {
  const me = useMe(), apps = useApps();
  const open = apps.data?.filter((a) => a.type === 'public') ?? [];
  const [id, setId] = useState<string | null>(null), [kind, setKind] = useState('card'), [key, setKey] = useState(''), [loader, setLoader] = useState<{ file: string; integrity: string }>();
  useEffect(() => { fetch('/elements/v1/integrity.json', { credentials: 'omit' }).then(async (r) => { if (r.ok) setLoader((await r.json()).loader); }).catch(() => undefined); }, []);
  const app = open.find((a) => a.id === id) ?? open[0];
  const text = snippet(location.origin, key.trim() || 'YOUR_PUBLIC_KEY', kind, loader ?? { file: 'elements.js', integrity: '' });
  return (
    <>
      <PageHead title="Card fields" about="Fields for your checkout page that your page cannot read: what is typed goes straight to the vault, and you get a token." />
      {!me.may('application:read') ? <Panel label="Card fields"><Closed permission="application:read" /></Panel> : !apps.data ? <Lines /> : !app ? <Panel label="Card fields"><Empty icon="card" title="No public application yet" action={<Link to="/applications?new">Create one for your checkout page</Link>}>The fields work with the key of a public application, which creates tokens and reads none.</Empty></Panel> : (
        <div className="grid two" style={{ gridTemplateColumns: 'minmax(0, 1fr) minmax(0, 1.4fr)', alignItems: 'start' }}>
          <Panel title="Choose" pad>
            <div className="stack">
              <Select label="Application" allowDeselect={false} value={app.id} onChange={setId} data={open.map((a) => ({ value: a.id, label: a.name }))} />
              <Select label="Fields" allowDeselect={false} value={kind} onChange={(v) => v && setKind(v)} data={kinds} />
              <Textarea label="Its public key" description="Everybody who opens your checkout page sees this key" autosize value={key} onChange={(e) => setKey(e.currentTarget.value)} styles={{ input: { fontFamily: 'var(--mantine-font-family-monospace)' } }} />
              {app.allowed_origins?.length ? <div className="dim">Pages that may embed them: <span className="mono">{app.allowed_origins.join(', ')}</span></div> : <Note tone="warn">No page may embed its fields yet. <Link to={`/applications/${app.id}`}>Add the origin of your shop</Link>.</Note>}
            </div>
          </Panel>
          <div className="stack" style={{ gap: 16 }}>
            <Panel title="Preview" pad>{/^key_[a-z0-9]+_pub_/.test(key.trim()) ? <Preview src={`/elements/v1/${encodeURIComponent(key.trim())}/${kind}`} /> : <div className="dim">Paste the public key to see the fields here. The page that shows them must be allowed: add <span className="mono">{location.origin}</span> to the application.</div>}</Panel>
            <Panel title="Snippet" right={<Copy text={text} label="Copy the snippet" />}><pre className="out" tabIndex={0} aria-label="Snippet">{text}</pre></Panel>
          </div>
        </div>
      )}
    </>
  );
}
