import { ActionIcon, Tooltip } from '@mantine/core';
import { lazy, Suspense, useEffect, useState, type ReactNode } from 'react';
import { NavLink, useLocation } from 'react-router';
import { useApps, useProxies, useReactors, useReady } from './data';
import { Icon } from './icons';
import { Mark, ThemeButton } from './Mark';
import { openTo } from './places';
import { useMe, useSignOut } from './session';
import { showsLong } from './words';

const Palette = lazy(() => import('./Palette'));

export function Shell({ children }: { children: ReactNode }) {
  const me = useMe(), signOut = useSignOut();
  const [menu, setMenu] = useState(false), [jump, setJump] = useState(false);
  const where = useLocation();
  const counts: Record<string, number | undefined> = { '/applications': useApps().data?.length, '/reactors': useReactors().data?.length, '/proxies': useProxies().data?.length };
  const ready = useReady();
  const place = where.pathname.startsWith('/tokens') ? '/tokens' : where.pathname; // a drawer is no new page
  useEffect(() => { setMenu(false); window.scrollTo(0, 0); }, [place]);
  useEffect(() => {
    const key = (e: KeyboardEvent) => { if ((e.metaKey || e.ctrlKey) && e.key.toLowerCase() === 'k') { e.preventDefault(); setJump((j) => !j); } };
    addEventListener('keydown', key);
    return () => removeEventListener('keydown', key);
  }, []);
  const tenant = me.tenant?.name ?? 'Tokenkeep';
  const name = me.member.name || me.member.email || 'Signed in';
  return (
    <>
      <a className="skip" href="#main">Skip to content</a>
      <section className="topbar" aria-label="Top bar">
        <ActionIcon aria-label="Menu" aria-expanded={menu} onClick={() => setMenu(!menu)}><Icon name={menu ? 'x' : 'menu'} size={18} /></ActionIcon>
        <span className="mark" style={{ width: 24, height: 24 }}><Mark size={14} /></span><b style={{ fontWeight: 600 }} className="clip grow">{tenant}</b>
        <ThemeButton />
      </section>
      <div className="shell">
        <aside className={`side${menu ? ' open' : ''}`} aria-label="Navigation">
          <div className="brand wide"><span className="mark"><Mark /></span><div className="grow"><b className="clip">{tenant}</b><small>Tokenkeep</small></div></div>
          <button className="jump" onClick={() => setJump(true)}><Icon name="search" size={14} /><span className="grow">Jump to…</span><kbd className="wide">⌘K</kbd></button>
          <nav aria-label="Main">
            {openTo(me).map((g) => (
              <div key={g.group}>
                {g.group && <div className="nav-h">{g.group}</div>}
                {g.items.map((i) => <NavLink key={i.to} to={i.to} end={i.to === '/'} className={({ isActive }) => `nav${isActive ? ' active' : ''}`}><Icon name={i.icon} />{i.label}{counts[i.to] !== undefined && <span className="count num">{counts[i.to]}</span>}</NavLink>)}
              </div>
            ))}
          </nav>
          <span className="grow" style={{ minHeight: 16 }} />
          {ready.data === false || ready.isError ? <div className="note bad" style={{ marginBottom: 8 }} role="status"><Icon name="alert" size={15} /><span>The server does not answer. What you see may be old.</span></div> : null}
          <div className="ring" role="group" aria-label="Signed in">
            <div><Icon name="shield" size={15} style={{ color: 'var(--good)', flex: 'none' }} /><span className="grow"><span className="clip" style={{ display: 'block' }}>{name}</span><small className="clip">{me.role.name}</small></span></div>
            <div><Icon name={me.sees === 'reveal' ? 'eye' : 'eyeOff'} size={15} style={{ color: me.sees === 'reveal' ? 'var(--reveal)' : me.sees === 'mask' ? 'var(--mask)' : 'var(--faint)', flex: 'none' }} /><small className="grow">{me.sees === 'reveal' ? 'may reveal values, with a reason' : me.sees === 'none' ? 'sees no tokens' : showsLong[me.sees]}</small></div>
          </div>
          <div className="row" style={{ padding: '8px 2px 0' }}>
            <span className="wide"><ThemeButton /></span>
            <Tooltip label="API reference"><ActionIcon component="a" href="/docs" target="_blank" rel="noreferrer" aria-label="API reference"><Icon name="file" /></ActionIcon></Tooltip>
            <span className="grow" />
            <button className="pill" onClick={signOut}>Sign out</button>
          </div>
        </aside>
        <main className="main" id="main" tabIndex={-1}>{children}</main>
      </div>
      {jump && <Suspense fallback={null}><Palette close={() => setJump(false)} /></Suspense>}
    </>
  );
}
