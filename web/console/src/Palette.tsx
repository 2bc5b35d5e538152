import { Modal, TextInput } from '@mantine/core';
import { useState, type KeyboardEvent } from 'react';
import { useNavigate } from 'react-router';
import { useApps, useProxies, useReactors } from './data';
import { Icon, type IconName } from './icons';
import { openTo } from './places';
import { useMe } from './session';

interface Target { to: string; label: string; about: string; icon: IconName }

/** Palette jumps to a page, to a definition by its name, or to a token by its id. */
export default function Palette({ close }: { close: () => void }) {
  const me = useMe(), go = useNavigate();
  const apps = useApps().data, reactors = useReactors().data, proxies = useProxies().data;
  const [text, setText] = useState(''), [at, setAt] = useState(0);
  const all: Target[] = [
    ...openTo(me).flatMap((g) => g.items),
    ...(apps ?? []).map((a) => ({ to: `/applications/${a.id}`, label: a.name, about: 'application', icon: 'app' as const })),
    ...(reactors ?? []).map((r) => ({ to: `/reactors/${r.id}`, label: r.name, about: 'reactor', icon: 'reactor' as const })),
    ...(proxies ?? []).map((p) => ({ to: `/proxies/${p.id}`, label: p.name, about: 'proxy', icon: 'proxy' as const })),
  ];
  const wanted = text.trim().toLowerCase();
  const found = all.filter((x) => `${x.label} ${x.about}`.toLowerCase().includes(wanted)).slice(0, 9);
  if (wanted.length > 2 && me.may('token:read')) found.push({ to: `/tokens/${encodeURIComponent(text.trim())}`, label: text.trim(), about: 'open the token with this id', icon: 'token' });
  const open = (x?: Target) => { if (x) { go(x.to); close(); } };
  const key = (e: KeyboardEvent) => {
    if (e.key === 'ArrowDown') { e.preventDefault(); setAt(Math.min(found.length - 1, at + 1)); }
    if (e.key === 'ArrowUp') { e.preventDefault(); setAt(Math.max(0, at - 1)); }
    if (e.key === 'Enter') { e.preventDefault(); open(found[at]); }
  };
  return (
    <Modal opened onClose={close} withCloseButton={false} padding={0} size={560} yOffset="12vh" aria-label="Jump to">
      <TextInput aria-label="Jump to" size="md" variant="unstyled" placeholder="A page, a name, or the id of a token" leftSection={<Icon name="search" />} value={text} onChange={(e) => { setText(e.currentTarget.value); setAt(0); }} onKeyDown={key} data-autofocus
        role="combobox" aria-expanded aria-controls="jump-list" aria-activedescendant={found[at] && `jump-${at}`} style={{ borderBottom: '1px solid var(--line)' }} />
      <ul id="jump-list" role="listbox" aria-label="Found" className="jumplist">
        {found.map((x, i) => <li key={x.to + x.label} id={`jump-${i}`} role="option" aria-selected={i === at} onMouseEnter={() => setAt(i)} onClick={() => open(x)}><Icon name={x.icon} size={15} /><span className="clip">{x.label}</span><span className="faint clip">{x.about}</span></li>)}
      </ul>
    </Modal>
  );
}
