import './fonts.css';
import '@mantine/core/styles.css';
import './app.css';
import { MantineProvider } from '@mantine/core';
import { QueryClient, QueryClientProvider } from '@tanstack/react-query';
import { setNonce } from 'get-nonce';
import { lazy, StrictMode, Suspense, useEffect } from 'react';
import { createRoot } from 'react-dom/client';
import { BrowserRouter, Route, Routes } from 'react-router';
import { onSignedOut, Problem } from './api';
import { SignIn } from './pages/SignIn';
import { MeProvider, selfKey, useSelf, useSignOut } from './session';
import { Shell } from './Shell';
import { resolver, theme } from './theme';
import { Empty, Failed, Lines } from './ui';

const Overview = lazy(() => import('./pages/Overview'));
const Tokens = lazy(() => import('./pages/Tokens'));
const Applications = lazy(() => import('./pages/Applications'));
const ApplicationPage = lazy(() => import('./pages/Application'));
const Sessions = lazy(() => import('./pages/Sessions'));
const Members = lazy(() => import('./pages/Members'));
const Reactors = lazy(() => import('./pages/Reactors'));
const ReactorPage = lazy(() => import('./pages/Reactor'));
const Proxies = lazy(() => import('./pages/Proxies'));
const ProxyPage = lazy(() => import('./pages/Proxy'));
const Webhooks = lazy(() => import('./pages/Webhooks'));
const WebhookPage = lazy(() => import('./pages/Webhook'));
const Log = lazy(() => import('./pages/Log'));
const Events = lazy(() => import('./pages/Events'));
const Reports = lazy(() => import('./pages/Reports'));
const Keys = lazy(() => import('./pages/Keys'));
const Settings = lazy(() => import('./pages/Settings'));
const Elements = lazy(() => import('./pages/Elements'));
const Operator = lazy(() => import('./pages/Operator'));

const queries = new QueryClient({
  defaultOptions: { queries: { refetchOnWindowFocus: false, gcTime: 60_000, retry: (n, e) => n < 2 && e instanceof Problem && [0, 408, 429, 503].includes(e.status) } },
});
const nonce = document.querySelector<HTMLMetaElement>('meta[name=csp-nonce]')?.content ?? '';
setNonce(nonce); // the scroll lock of drawers and dialogs writes a style of its own
onSignedOut(() => { queries.clear(); queries.setQueryData(selfKey, null); });

const idle = 15 * 60_000;

/** useIdleSignOut signs out after a time without a key or a click: requests that the page makes by itself do not count. */
function useIdleSignOut(signedIn: boolean) {
  const signOut = useSignOut();
  useEffect(() => {
    if (!signedIn) return;
    let timer = setTimeout(signOut, idle);
    const again = () => { clearTimeout(timer); timer = setTimeout(signOut, idle); };
    addEventListener('pointerdown', again); addEventListener('keydown', again);
    return () => { clearTimeout(timer); removeEventListener('pointerdown', again); removeEventListener('keydown', again); };
  }, [signedIn, signOut]);
}

function App() {
  const { me, isPending, error, refetch } = useSelf();
  useIdleSignOut(!!me);
  const unknown = error instanceof Problem && [401, 403, 404, 405].includes(error.status);
  if (isPending) return <div className="signin"><main><Lines /></main></div>;
  if (error && !unknown && !me) return <div className="signin"><main><Failed error={error} retry={() => refetch()} /></main></div>;
  if (!me) return <SignIn />;
  return (
    <MeProvider value={me}>
      <Shell>
        <Suspense fallback={<Lines />}>
          <Routes>
            <Route index element={me.operator ? <Operator /> : <Overview />} />
            <Route path="sign-in" element={<Overview />} />
            <Route path="tokens/:id?" element={<Tokens />} />
            <Route path="applications" element={<Applications />} />
            <Route path="applications/:id" element={<ApplicationPage />} />
            <Route path="sessions" element={<Sessions />} />
            <Route path="members" element={<Members />} />
            <Route path="reactors" element={<Reactors />} />
            <Route path="reactors/:id" element={<ReactorPage />} />
            <Route path="proxies" element={<Proxies />} />
            <Route path="proxies/:id" element={<ProxyPage />} />
            <Route path="webhooks" element={<Webhooks />} />
            <Route path="webhooks/:id" element={<WebhookPage />} />
            <Route path="log" element={<Log />} />
            <Route path="events" element={<Events />} />
            <Route path="reports" element={<Reports />} />
            <Route path="keys" element={<Keys />} />
            <Route path="settings" element={<Settings />} />
            <Route path="elements" element={<Elements />} />
            <Route path="*" element={<Empty icon="search" title="Unknown page" />} />
          </Routes>
        </Suspense>
      </Shell>
    </MeProvider>
  );
}

createRoot(document.getElementById('root')!).render(
  <StrictMode>
    <MantineProvider theme={theme} cssVariablesResolver={resolver} defaultColorScheme="auto" getStyleNonce={() => nonce}>
      <QueryClientProvider client={queries}>
        <BrowserRouter basename="/console"><App /></BrowserRouter>
      </QueryClientProvider>
    </MantineProvider>
  </StrictMode>,
);
