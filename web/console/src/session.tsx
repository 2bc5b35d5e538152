// Who is signed in, and what they may do.
import { useQuery, useQueryClient } from '@tanstack/react-query';
import { createContext, useCallback, useContext, useMemo } from 'react';
import { call, sight, type Rule, type Tenant, type Transform } from './api';

export interface Role { name: string; description?: string; permissions: string[]; rules: Rule[]; built_in?: boolean }
export interface Member { id: string; email?: string; name?: string; role?: string; state?: string; last_seen_at?: string; created_at?: string }
export interface Self { member: Member; role: Role; tenant?: Partial<Tenant> & { id: string; name?: string }; session?: { id?: string; expires_at?: string; idle_at?: string }; operator?: boolean }

export interface Me extends Self {
  /** may reports whether the role has a permission, on some token for permissions on tokens. */
  may: (permission: string) => boolean;
  sees: Transform | 'none';
}

const Context = createContext<Me | undefined>(undefined);
export const MeProvider = Context.Provider;

/** useMe returns who is signed in; it is called below the shell only. */
export function useMe(): Me {
  const me = useContext(Context);
  if (!me) throw new Error('nobody is signed in');
  return me;
}

export function withRights(self: Self): Me {
  const role = { ...self.role, permissions: self.role?.permissions ?? [], rules: self.role?.rules ?? [] };
  const may = (p: string) => role.permissions.includes(p) || role.rules.some((r) => r.permissions.includes(p));
  return { ...self, role, may, sees: sight(role) };
}

export const selfKey = ['self'];
export function useSelf() {
  const self = useQuery({ queryKey: selfKey, queryFn: () => call<Self>('GET', '/members/self', undefined, { quiet: true }), staleTime: Infinity, gcTime: Infinity, retry: false });
  const me = useMemo(() => (self.data ? withRights(self.data) : undefined), [self.data]);
  return { ...self, me };
}

/** useSignOut ends the session on the server and forgets everything that was fetched. */
export function useSignOut() {
  const client = useQueryClient();
  return useCallback(async () => {
    try { await call('POST', '/auth/sign-out', undefined, { quiet: true }); } catch { /* the session may have ended already */ }
    client.clear();
    location.assign('/console/');
  }, [client]);
}
