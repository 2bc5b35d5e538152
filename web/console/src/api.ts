// Everything that the console knows of the server: its public HTTP API, called as the person who signed in.
// The cookie of the session is HttpOnly, so this code never sees it.
import type { components } from '../../../client/typescript/src/schema.ts';

type Schemas = components['schemas'];
export type Transform = 'redact' | 'mask' | 'reveal';
export type AppType = Schemas['ApplicationType'];
export type Rule = Omit<Schemas['Rule'], 'permissions'> & { permissions: string[]; requires_reason?: boolean };
export type Key = Schemas['Key'] & { last_used_on?: string };
export type Application = Omit<Schemas['Application'], 'rules' | 'permissions' | 'keys'> & { rules: Rule[]; permissions: string[]; keys: Key[] };
export type Token = Schemas['Token'];
export type LogEntry = Schemas['LogEntry'] & { transform?: Transform; reason?: string; actor_name?: string };
export type Step = Schemas['AccessStep'];
export type Explanation = Schemas['Explanation'];
export type Holder = Omit<Schemas['AccessHolder'], 'kind'> & { kind: string };
export type Reactor = Schemas['Reactor'];
export type Run = Schemas['Run'];
export type Proxy = Schemas['Proxy'];
export type Preview = Schemas['ProxyPreview'];
export type Session = Schemas['Session'];
export type Tenant = Schemas['Tenant'];
export type Usage = Schemas['Usage'];
export interface Page<T> { pagination: Schemas['Pagination']; data: T[] }
export interface Part<T> { pagination: { page_size: number; next?: string }; data: T[] }

/** Problem is a refusal or a failure, in the words of the server. */
export class Problem extends Error {
  constructor(public status: number, public title: string, public detail: string, public errors: Record<string, string[]> | undefined, public trace: string | null) {
    super(detail);
  }
}

/** isMissing reports whether the server has no such route, which an older server does not. */
export const isMissing = (error: unknown) => error instanceof Problem && (error.status === 404 || error.status === 405);

let signedOut: () => void = () => {};
/** onSignedOut sets what happens when the server no longer knows who is asking. */
export const onSignedOut = (f: () => void) => { signedOut = f; };

export interface Options { signal?: AbortSignal; quiet?: boolean }

/** prefix is what the names of the server's headers begin with. */
export let prefix = 'SVC';
const traceOf = (response: Response) => [...response.headers].find(([name]) => name.endsWith('-trace-id'));

async function send(method: string, path: string, body: unknown, options: Options, accept = 'application/json'): Promise<Response> {
  const headers: Record<string, string> = { Accept: accept };
  if (body !== undefined) headers['Content-Type'] = method === 'PATCH' ? 'application/merge-patch+json' : 'application/json';
  try {
    const response = await fetch(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body), cache: 'no-store', credentials: 'same-origin', redirect: 'error', signal: options.signal });
    prefix = traceOf(response)?.[0].replace(/-trace-id$/, '').toUpperCase() ?? prefix;
    return response;
  } catch (e) {
    if (options.signal?.aborted) throw e;
    throw new Problem(0, 'No answer', 'The server cannot be reached. What you see may be old.', undefined, null);
  }
}

async function problem(response: Response): Promise<Problem> {
  let json: { title?: string; detail?: string; errors?: Record<string, string[]> } | undefined;
  try { json = await response.json(); } catch { json = undefined; }
  return new Problem(response.status, json?.title ?? (response.statusText || 'Refused'), json?.detail ?? 'The server responded with something else than JSON.', json?.errors, traceOf(response)?.[1] ?? null);
}

/** call sends a request of the API and returns its JSON. */
export async function call<T>(method: string, path: string, body?: unknown, options: Options = {}): Promise<T> {
  const response = await send(method, path, body, options);
  if (!response.ok) {
    const p = await problem(response);
    if (p.status === 401 && !options.quiet) signedOut();
    throw p;
  }
  const text = await response.text();
  return (text ? JSON.parse(text) : undefined) as T;
}

/** download saves what a route returns as a file. */
export async function download(path: string, name: string, accept: string) {
  const response = await send('GET', path, undefined, {}, accept);
  if (!response.ok) throw await problem(response);
  save(await response.blob(), name);
}

/** save hands a file to the browser. */
export function save(blob: Blob, name: string) {
  const url = URL.createObjectURL(blob);
  Object.assign(document.createElement('a'), { href: url, download: name }).click();
  URL.revokeObjectURL(url);
}

/** query makes the query of a URL from what is set. */
export function query(params: Record<string, string | number | undefined | false | null>): string {
  const q = new URLSearchParams();
  for (const [k, v] of Object.entries(params)) if (v !== undefined && v !== '' && v !== false && v !== null) q.set(k, String(v));
  const text = q.toString();
  return text && `?${text}`;
}

export const part = encodeURIComponent;

/** every reads all pages of a list of definitions, which are few. */
export async function every<T>(path: string, most = 10): Promise<T[]> {
  const out: T[] = [];
  for (let page = 1; page <= most; page++) {
    const got = await call<Page<T>>('GET', `${path}${path.includes('?') ? '&' : '?'}page=${page}&size=100`);
    out.push(...got.data);
    if (page >= got.pagination.total_pages) break;
  }
  return out;
}

/** sight is the most that somebody sees of tokens. */
export function sight(who: { permissions: string[]; rules: Rule[] }, permission = 'token:read'): Transform | 'none' {
  const shown: string[] = who.rules.filter((r) => r.permissions.includes(permission)).map((r) => r.transform);
  if (who.permissions.includes(permission)) shown.push('mask');
  return shown.includes('reveal') ? 'reveal' : shown.includes('mask') ? 'mask' : shown.includes('redact') ? 'redact' : 'none';
}
