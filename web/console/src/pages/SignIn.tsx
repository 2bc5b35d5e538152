import { Button } from '@mantine/core';
import { useQuery, useQueryClient } from '@tanstack/react-query';
import { useEffect, useRef, useState } from 'react';
import { useLocation, useNavigate } from 'react-router';
import { call, isMissing } from '../api';
import { useReady } from '../data';
import { Icon } from '../icons';
import { Mark, ThemeButton } from '../Mark';
import { selfKey } from '../session';
import { Copy, Failed, Lines, Note } from '../ui';

interface Provider { id: string; name?: string }

/** takeCode reads the code of a sign-in link and removes it from the address, so that no history has it. */
function takeCode(): string | undefined {
  const code = /^#code=(.+)$/.exec(location.hash)?.[1];
  if (code) history.replaceState(null, '', location.pathname);
  return code && decodeURIComponent(code);
}

/** SignIn asks who is there: by a provider, or by a link that was made for them. */
export function SignIn() {
  const client = useQueryClient(), go = useNavigate(), where = useLocation(), ready = useReady();
  const code = useRef<string>(undefined);
  const [error, setError] = useState<unknown>(), [busy, setBusy] = useState(false);
  const providers = useQuery({ queryKey: ['providers'], retry: false, queryFn: async () => { const got = await call<Provider[] | { providers?: Provider[]; data?: Provider[] }>('GET', '/auth/providers', undefined, { quiet: true }); return Array.isArray(got) ? got : (got.providers ?? got.data ?? []); } });
  useEffect(() => {
    code.current ??= takeCode();
    const given = code.current;
    if (!given) return;
    code.current = '';
    setBusy(true);
    call('POST', '/auth/link', { code: given }, { quiet: true })
      .then(async () => { await client.resetQueries({ queryKey: selfKey }); go('/', { replace: true }); })
      .catch(setError).finally(() => setBusy(false));
  }, [client, go]);
  const command = 'tokenkeep console link --tenant TENANT --role ROLE';
  const back = '/console' + (where.pathname === '/sign-in' ? '/' : where.pathname + where.search);
  return (
    <div className="signin">
      <main>
        <div className="row" style={{ marginBottom: 20 }}>
          <span className="mark" style={{ width: 34, height: 34, borderRadius: 9 }}><Mark size={20} /></span>
          <div className="grow"><h1 style={{ margin: 0, fontSize: 18, fontWeight: 600, letterSpacing: '-0.015em' }}>Tokenkeep console</h1>
            <div className="dim row" style={{ gap: 6, fontSize: 12 }}><i className="dot" style={{ background: ready.data ? 'var(--good)' : ready.isLoading ? 'var(--faint)' : 'var(--bad)' }} />{location.host} {ready.data ? 'is ready' : ready.isLoading ? '' : 'does not answer'}</div></div>
          <ThemeButton />
        </div>
        <div className="panel stack" style={{ padding: 20 }}>
          {busy ? <Lines n={2} /> : (
            <>
              {error !== undefined && <Failed error={error} />}
              {providers.isLoading ? <Lines n={2} /> : providers.isError && !isMissing(providers.error) ? <Failed error={providers.error} retry={() => providers.refetch()} /> : providers.data?.length ? (
                <div className="stack" style={{ gap: 8 }}>
                  <b style={{ fontWeight: 600 }}>Sign in</b>
                  {providers.data.map((p) => <Button key={p.id} component="a" href={`/auth/${encodeURIComponent(p.id)}/start?return_to=${encodeURIComponent(back)}`} className="ink" size="sm" fullWidth>Continue with {p.name ?? p.id}</Button>)}
                </div>
              ) : providers.isError ? <Note>This server has no sign-in for people yet. Everything that the console shows is in its API.</Note> : null}
              {!providers.isError && (
                <div>
                  <b style={{ fontWeight: 600 }}>{providers.data?.length ? 'Or with a link' : 'Sign in with a link'}</b>
                  <div className="dim" style={{ margin: '2px 0 8px' }}>Anyone who runs the server makes one for you. It works once, for ten minutes.</div>
                  <div className="value row" style={{ padding: '4px 4px 4px 10px' }}><span className="mono grow" style={{ overflowWrap: 'anywhere' }}>{command}</span><Copy text={command} label="Copy the command" /></div>
                </div>
              )}
            </>
          )}
        </div>
        <div className="dim" style={{ fontSize: 12, marginTop: 14, display: 'flex', gap: 8 }}><Icon name="lock" size={14} style={{ flex: 'none', marginTop: 1 }} /><span>You are signed out after 15 minutes without a click, and after 8 hours. What you do here is in the audit log.</span></div>
      </main>
    </div>
  );
}
