// What several pages read.
import { useQuery } from '@tanstack/react-query';
import { useMemo } from 'react';
import { call, every, isMissing, type Application, type Proxy, type Reactor } from './api';
import { useMe, type Member, type Role } from './session';

function useList<T>(path: string, permission: string) {
  const me = useMe();
  return useQuery({ queryKey: [path], queryFn: () => every<T>(path), enabled: me.may(permission), staleTime: 30_000 });
}
export const useApps = () => useList<Application>('/applications', 'application:read');
export const useReactors = () => useList<Reactor>('/reactors', 'reactor:read');
export const useProxies = () => useList<Proxy>('/proxies', 'proxy:read');
export const useMembers = () => useList<Member>('/members', 'member:read');

export function useRoles() {
  const me = useMe();
  return useQuery({ queryKey: ['/roles'], enabled: me.may('member:read'), staleTime: 60_000, queryFn: async () => { const got = await call<Role[] | { data: Role[] }>('GET', '/roles'); return Array.isArray(got) ? got : got.data; } });
}

export const useReady = () => useQuery({ queryKey: ['ready'], queryFn: async () => (await fetch('/readyz', { cache: 'no-store', credentials: 'omit' })).ok, refetchInterval: 30_000, retry: false });

/** useOptional reads a route that an older server lacks: there it returns null. */
export function useOptional<T>(path: string, enabled = true, refetchInterval: number | false = false) {
  return useQuery({
    queryKey: [path], enabled, refetchInterval, retry: false,
    queryFn: async () => { try { return await call<T>('GET', path); } catch (e) { if (isMissing(e)) return null; throw e; } },
  });
}

export interface Named { name: string; to: string }

/** useNames gives the names of applications, keys, reactors, proxies and members by their ids. */
export function useNames(): Map<string, Named> {
  const apps = useApps().data, reactors = useReactors().data, proxies = useProxies().data, members = useMembers().data;
  return useMemo(() => {
    const all = new Map<string, Named>();
    for (const a of apps ?? []) {
      all.set(a.id, { name: a.name, to: `/applications/${a.id}` });
      for (const k of a.keys ?? []) all.set(k.id, { name: `${a.name}, key ${k.version}`, to: `/applications/${a.id}` });
    }
    for (const r of reactors ?? []) all.set(r.id, { name: r.name, to: `/reactors/${r.id}` });
    for (const p of proxies ?? []) all.set(p.id, { name: p.name, to: `/proxies/${p.id}` });
    for (const m of members ?? []) all.set(m.id, { name: m.name || m.email || m.id, to: '/members' });
    return all;
  }, [apps, reactors, proxies, members]);
}
