import { ActionIcon, Button, CopyButton, Modal, Popover, Skeleton, TextInput, Tooltip, type ButtonProps } from '@mantine/core';
import { useEffect, useState, type ButtonHTMLAttributes, type FormEvent, type MouseEvent, type ReactNode } from 'react';
import { Link, useNavigate } from 'react-router';
import { prefix, Problem, type LogEntry, type Transform } from './api';
import { useNames } from './data';
import { Icon, type IconName } from './icons';
import { useMe } from './session';
import { glyph, isRevealed, isToken, sentence, shows, thing, tokenTypes } from './words';

export function PageHead({ title, about, crumb, actions, tags }: { title: ReactNode; about?: ReactNode; crumb?: { to: string; label: string }; actions?: ReactNode; tags?: ReactNode }) {
  return (
    <div className="head">
      <div className="grow" style={{ minWidth: 220 }}>
        {crumb && <div className="crumb"><Link to={crumb.to}>{crumb.label}</Link> <Icon name="right" size={12} /></div>}
        <div className="row wrap"><h1>{title}</h1>{tags}</div>
        {about && <p>{about}</p>}
      </div>
      {actions && <div className="row wrap">{actions}</div>}
    </div>
  );
}

export function Panel({ title, right, children, foot, pad, label }: { title?: ReactNode; right?: ReactNode; children: ReactNode; foot?: ReactNode; pad?: boolean; label?: string }) {
  return (
    <section className="panel" aria-label={label ?? (typeof title === 'string' ? title : undefined)}>
      {title && <header><h2>{title}</h2><span className="grow" />{right}</header>}
      {pad ? <div className="pad">{children}</div> : children}
      {foot && <footer>{foot}</footer>}
    </section>
  );
}

// Commit is the one button of a view that changes something: ink. Danger is red, and asks first.
export const Commit = (p: ButtonProps & ButtonHTMLAttributes<HTMLButtonElement>) => <Button {...p} className="ink" />;

export const Exposure = ({ of }: { of: Transform }) => (
  <span className={`chip ${of}`}><Icon name={of === 'reveal' ? 'eye' : of === 'mask' ? 'eyeOff' : 'ban'} size={12} />{shows[of]}</span>
);
export const Path = ({ children }: { children: string }) => <span className="chip path">{children}</span>;
export const TypeLabel = ({ type }: { type: string }) => (
  <span className="row" style={{ gap: 7 }}><Icon name={tokenTypes[type]?.icon ?? 'box'} size={15} style={{ color: 'var(--faint)', flex: 'none' }} /><span className="clip">{tokenTypes[type]?.one.replace(/^./, (c) => c.toUpperCase()) ?? type}</span></span>
);

export function Empty({ icon, title, children, action }: { icon: IconName; title: string; children?: ReactNode; action?: ReactNode }) {
  return <div className="empty"><Icon name={icon} size={22} style={{ color: 'var(--faint)' }} /><b>{title}</b>{children && <div style={{ maxWidth: '46ch' }}>{children}</div>}{action && <div style={{ marginTop: 8 }}>{action}</div>}</div>;
}

export function Note({ tone, icon, children }: { tone?: 'bad' | 'warn' | 'good'; icon?: IconName; children: ReactNode }) {
  return <div className={`note ${tone ?? ''}`} role={tone === 'bad' ? 'alert' : undefined}><Icon name={icon ?? (tone === 'good' ? 'check' : tone ? 'alert' : 'info')} size={15} /><div className="grow">{children}</div></div>;
}

// Failed shows what went wrong in the server's words, and the trace id by which the operator finds it.
export function Failed({ error, retry }: { error: unknown; retry?: () => void }) {
  const p = error instanceof Problem ? error : undefined;
  const fields = p?.errors && Object.entries(p.errors);
  return (
    <Note tone="bad">
      <b style={{ fontWeight: 600 }}>{p ? (p.status === 403 ? 'Your role does not allow this' : p.title) : 'Something went wrong'}</b>
      <div>{p?.detail ?? String(error)}</div>
      {fields?.map(([f, m]) => <div key={f}><span className="mono">{f}</span> {m.join(', ')}</div>)}
      {(p?.trace || retry) && <div className="row" style={{ marginTop: 4 }}>{p?.trace && <span className="mono" style={{ fontSize: 11 }}>trace {p.trace}</span>}{retry && <Button variant="subtle" color="red" className="danger" size="compact-xs" onClick={retry}>Try again</Button>}</div>}
    </Note>
  );
}

/** Danger asks for the name of what is about to be destroyed, after saying what follows. */
export function Danger({ opened, close, title, name, children, action, run }: { opened: boolean; close: () => void; title: string; name: string; children: ReactNode; action: string; run: () => Promise<unknown> }) {
  const [typed, setTyped] = useState(''), [error, setError] = useState<unknown>(), [busy, setBusy] = useState(false);
  useEffect(() => { if (opened) { setTyped(''); setError(undefined); } }, [opened]);
  const submit = async (e: FormEvent) => {
    e.preventDefault();
    if (typed !== name) return;
    setBusy(true); setError(undefined);
    try { await run(); close(); } catch (x) { setError(x); } finally { setBusy(false); }
  };
  return (
    <Modal opened={opened} onClose={close} title={<b style={{ fontWeight: 600 }}>{title}</b>} closeButtonProps={{ 'aria-label': 'Close' }}>
      <form className="stack" onSubmit={submit}>
        <div>{children}</div>
        <TextInput label={<>Type <b>{name}</b> to go on</>} autoComplete="off" value={typed} onChange={(e) => setTyped(e.currentTarget.value)} data-autofocus />
        {error !== undefined && <Failed error={error} />}
        <div className="row"><span className="grow" /><Button variant="default" onClick={close}>Keep it</Button><Button type="submit" color="red.8" loading={busy} disabled={typed !== name}>{action}</Button></div>
      </form>
    </Modal>
  );
}

/** Sheet is a dialog with a form that creates or changes something. */
export function Sheet({ opened, close, title, action, run, children, ready = true, size = 520 }: { opened: boolean; close: () => void; title: string; action: string; run: () => Promise<unknown>; children: ReactNode; ready?: boolean; size?: number }) {
  const [error, setError] = useState<unknown>(), [busy, setBusy] = useState(false);
  useEffect(() => { if (opened) setError(undefined); }, [opened]);
  const submit = async (e: FormEvent) => {
    e.preventDefault(); e.stopPropagation();
    setBusy(true); setError(undefined);
    try { await run(); } catch (x) { setError(x); } finally { setBusy(false); }
  };
  return (
    <Modal opened={opened} onClose={close} size={size} title={<b style={{ fontWeight: 600 }}>{title}</b>} closeButtonProps={{ 'aria-label': 'Close' }}>
      <form className="stack" onSubmit={submit}>
        {children}
        {error !== undefined && <Failed error={error} />}
        <div className="row"><span className="grow" /><Button variant="default" onClick={close}>Cancel</Button><Commit type="submit" loading={busy} disabled={!ready}>{action}</Commit></div>
      </form>
    </Modal>
  );
}

/** Once shows a secret that the server shows one time. */
export function Once({ secret, close, title, children }: { secret?: string; close: () => void; title: string; children?: ReactNode }) {
  return (
    <Modal opened={!!secret} onClose={close} closeOnClickOutside={false} title={<b style={{ fontWeight: 600 }}>{title}</b>} closeButtonProps={{ 'aria-label': 'Close' }}>
      <div className="stack">
        <Note tone="warn">It is shown now, and never again. Store it where your secrets are.</Note>
        <div className="value row secret" style={{ padding: '6px 6px 6px 12px' }}><span className="mono grow" style={{ overflowWrap: 'anywhere' }}>{secret}</span><Copy text={secret ?? ''} label="Copy it" /></div>
        {children}
        <div className="row"><span className="grow" /><Commit onClick={close}>Done</Commit></div>
      </div>
    </Modal>
  );
}

/** Curl shows the request behind a page, for a terminal. */
export function Curl({ method = 'GET', path, body }: { method?: string; path: string; body?: unknown }) {
  const text = [`curl ${method === 'GET' ? '' : `-X ${method} `}"${location.origin}${path}"`, `  -H "${prefix}-API-KEY: $TOKENKEEP_KEY"`, ...(body === undefined ? [] : ["  -H 'Content-Type: application/json'", `  -d '${JSON.stringify(body).replaceAll("'", "'\\''")}'`])].join(' \\\n');
  return (
    <Popover width={520} position="bottom-end" shadow="md" trapFocus>
      <Popover.Target><Button variant="subtle" color="gray" className="quiet wide" leftSection={<Icon name="terminal" size={14} />}>curl</Button></Popover.Target>
      <Popover.Dropdown aria-label="The same with curl"><div className="row"><b className="grow" style={{ fontWeight: 600 }}>The same with curl</b><Copy text={text} label="Copy the command" /></div><pre className="out" tabIndex={0} aria-label="Command" style={{ marginTop: 6, borderRadius: 6 }}>{text}</pre></Popover.Dropdown>
    </Popover>
  );
}

/** NotYet stands where the server has no such route. */
export const NotYet = ({ what }: { what: string }) => <Empty icon="server" title={`This server has no ${what}`}>A newer version of Tokenkeep brings them to this page.</Empty>;

/** Closed stands where the role of the member does not reach. */
export const Closed = ({ permission }: { permission: string }) => <Empty icon="lock" title="Your role does not show this">It takes <span className="mono">{permission}</span>. An owner of the vault can give you a role that has it.</Empty>;

export const Saved = ({ children = 'Saved' }: { children?: ReactNode }) => <span className="row" style={{ color: 'var(--good)', gap: 5 }} role="status"><Icon name="check" size={14} />{children}</span>;

export const Lines = ({ n = 5 }: { n?: number }) => <div style={{ padding: 14 }} aria-busy aria-label="Loading">{Array.from({ length: n }, (_, i) => <Skeleton key={i} height={12} mb={16} width={`${92 - ((i * 17) % 40)}%`} />)}</div>;

export function Copy({ text, label }: { text: string; label: string }) {
  return (
    <CopyButton value={text} timeout={1500}>
      {({ copied, copy }) => (
        <Tooltip label={copied ? 'Copied' : label}>
          <ActionIcon aria-label={label} size={22} onClick={(e: MouseEvent) => { e.stopPropagation(); copy(); }}><Icon name={copied ? 'check' : 'copy'} size={13} /></ActionIcon>
        </Tooltip>
      )}
    </CopyButton>
  );
}

export const short = (id: string) => (/^[0-9a-f]{8}-[0-9a-f]{4}-/.test(id) ? `${id.slice(0, 8)}…${id.slice(-4)}` : id);

// Who puts a name to an id; one that is not known keeps its short form.
export function Who({ id, name, system }: { id?: string; name?: string; system?: boolean }) {
  const names = useNames();
  if (!id) return <span className="who">{name ?? (system ? 'The server' : 'An unknown caller')}</span>;
  const n = names.get(id);
  if (n) return <Link to={n.to} className="who" onClick={(e) => e.stopPropagation()}>{n.name}</Link>;
  return name ? <span className="who">{name}</span> : <Tooltip label="Deleted, or not visible to your role"><span className="mono dim">{short(id)}</span></Tooltip>;
}

export function useNow(every: number) {
  const [now, set] = useState(Date.now());
  useEffect(() => { const t = setInterval(() => set(Date.now()), every); return () => clearInterval(t); }, [every]);
  return now;
}
export function ago(at: string, now = Date.now()) {
  const s = Math.round((now - Date.parse(at)) / 1000), a = Math.abs(s);
  const t = a < 60 ? `${a} s` : a < 3600 ? `${Math.round(a / 60)} min` : a < 86400 ? `${Math.round(a / 3600)} h` : `${Math.round(a / 86400)} d`;
  return s < 0 ? `in ${t}` : a < 5 ? 'just now' : `${t} ago`;
}
const full = new Intl.DateTimeFormat('en-GB', { dateStyle: 'medium', timeStyle: 'long', timeZone: 'UTC' });
export function When({ at, clock }: { at: string; clock?: boolean }) {
  const d = new Date(at);
  return <Tooltip label={full.format(d)}><time dateTime={at} className="num dim" style={{ whiteSpace: 'nowrap' }}>{clock ? d.toLocaleTimeString('en-GB') : ago(at)}</time></Tooltip>;
}

export function GoRow({ to, on, children }: { to: string; on?: boolean; children: ReactNode }) {
  const go = useNavigate();
  return <tr data-go data-on={on || undefined} onClick={(e) => { if (!(e.target as HTMLElement).closest('a,button')) go(to); }}>{children}</tr>;
}

export function Entry({ e, fresh, more, open, brief }: { e: LogEntry & { tokens?: LogEntry[] }; fresh?: boolean; more?: () => void; open?: boolean; brief?: boolean }) {
  const names = useNames();
  const me = useMe();
  const revealed = isRevealed(e);
  const known = names.get(e.entity_id);
  const what = known ? <Link to={known.to}>{known.name}</Link> : isToken(e.entity_type)
    ? <Link to={`/tokens/${encodeURIComponent(e.entity_id)}`} className="mono">{short(e.entity_id)}</Link> : <span className="mono dim">{short(e.entity_id)}</span>;
  return (
    <div className={`entry ${e.outcome === 'denied' ? 'denied' : ''} ${revealed ? 'revealed' : ''} ${fresh ? 'fresh' : ''} ${brief ? 'brief' : ''}`}>
      <When at={e.created_at} clock />
      <Icon name={glyph(e)} size={14} />
      <div className="said">{sentence(e, <Who id={e.actor_id} name={e.actor_name} system={e.actor_type === 'system'} />, what, brief)}{e.tokens?.length ? <> with {e.tokens.slice(0, 3).map((t, i) => <span key={t.id}>{i > 0 && ', '}{thing(t.entity_type)} <Link to={`/tokens/${encodeURIComponent(t.entity_id)}`} className="mono">{short(t.entity_id)}</Link></span>)}{e.tokens.length > 3 && ` and ${e.tokens.length - 3} more`}</> : null}{e.reason && <span style={{ color: 'var(--reveal)' }}> — reason: {e.reason}</span>}</div>
      <div className="row tail" style={{ gap: 6 }}>
        {e.session_id && e.actor_type !== 'user' && <span className="chip line">in a session</span>}
        {!brief && e.transform && !e.tokens && isToken(e.entity_type) && e.operation === 'read' && <span className="wide"><Exposure of={e.transform} /></span>}
        {!brief && e.actor_id === me.member.id && <span className="chip line wide">you</span>}
        {more && <ActionIcon size={22} aria-label="Details of this entry" aria-expanded={open} onClick={more}><Icon name={open ? 'up' : 'down'} size={14} /></ActionIcon>}
      </div>
      {open && (
        <dl className="dl facts">
          <dt>Time</dt><dd className="mono">{e.created_at}</dd>
          <dt>Trace</dt><dd className="mono">{e.trace_id ?? 'none'} {e.trace_id && <Copy text={e.trace_id} label="Copy the trace id" />}</dd>
          <dt>From</dt><dd className="mono">{e.client_address ?? 'not recorded'}</dd>
          <dt>Recorded as</dt><dd>{e.message} <span className="mono dim">{e.entity_type}/{e.operation}/{e.outcome}</span></dd>
          {e.transform && <><dt>Showed</dt><dd><Exposure of={e.transform} /></dd></>}
          {e.reason && <><dt>Reason</dt><dd>{e.reason}</dd></>}
          <dt>Entry</dt><dd className="mono">{e.id}</dd>
        </dl>
      )}
    </div>
  );
}
