import type { operations } from './schema.js';

/** The name of an operation of the API. */
/** What the document says of itself, and the page for people, are no calls of a program. */
type NoCall = 'getRoot' | 'getConsole' | 'getSelf' | 'listSignInProviders' | 'redeemLink' | 'signOut' | 'startSignIn' | 'finishSignIn' | 'providerLogout' | 'getDocs' | 'getDocsFile' | 'getElementsFile' | 'getElementsPage' | 'getElementsPlayground' | 'getOpenAPI' | 'getOpenAPIYAML';

export type OperationId = Exclude<keyof operations, NoCall>;

/** One operation of the API, and how it may be repeated. */
export interface Row {
  readonly method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';
  /** With {names}, as it stands in errors. */
  readonly path: string;
  /** Of the body, when it is not JSON. */
  readonly media?: string;
  /** Sent under an idempotency key. */
  readonly keyed?: true;
  /** Only reads, so it may be repeated whatever its method is. */
  readonly reads?: true;
  /** Runs code of a tenant, which may have had effects before it failed. */
  readonly runs?: true;
  /** Takes no key and is tried once: it asks how the server is now. */
  readonly open?: true;
  /** What a success has for a body, when it is not JSON. */
  readonly answer?: 'none' | 'text';
}

const patch = 'application/merge-patch+json';

/** Every operation: the compiler refuses a missing one and one too many. */
export const rows = {
  getTenant: { method: 'GET', path: '/tenants/self' },
  replaceTenant: { method: 'PUT', path: '/tenants/self', keyed: true },
  deleteTenant: { method: 'DELETE', path: '/tenants/self', answer: 'none' },
  getUsage: { method: 'GET', path: '/tenants/self/reports/usage' },
  getCallbackSecret: { method: 'GET', path: '/tenants/self/callback-secret' },
  rotateCallbackSecret: { method: 'POST', path: '/tenants/self/callback-secret', keyed: true },

  createApplication: { method: 'POST', path: '/applications', keyed: true },
  listApplications: { method: 'GET', path: '/applications' },
  getOwnApplication: { method: 'GET', path: '/applications/key' },
  getApplication: { method: 'GET', path: '/applications/{id}' },
  replaceApplication: { method: 'PUT', path: '/applications/{id}', keyed: true },
  deleteApplication: { method: 'DELETE', path: '/applications/{id}', answer: 'none' },
  regenerateKey: { method: 'POST', path: '/applications/{id}/regenerate', keyed: true },
  createKey: { method: 'POST', path: '/applications/{id}/keys', keyed: true },
  listKeys: { method: 'GET', path: '/applications/{id}/keys' },
  getKey: { method: 'GET', path: '/applications/{id}/keys/{key_id}' },
  deleteKey: { method: 'DELETE', path: '/applications/{id}/keys/{key_id}', answer: 'none' },
  listPermissions: { method: 'GET', path: '/permissions' },

  createSession: { method: 'POST', path: '/sessions', keyed: true },
  authorizeSession: { method: 'POST', path: '/sessions/authorize', keyed: true, answer: 'none' },
  listSessions: { method: 'GET', path: '/sessions' },
  deleteSession: { method: 'DELETE', path: '/sessions/{id}', answer: 'none' },
  createMember: { method: 'POST', path: '/members' },
  listMembers: { method: 'GET', path: '/members' },
  getMember: { method: 'GET', path: '/members/{id}' },
  updateMember: { method: 'PATCH', path: '/members/{id}', media: patch },
  deleteMember: { method: 'DELETE', path: '/members/{id}', answer: 'none' },
  listMemberSessions: { method: 'GET', path: '/members/{id}/sessions' },
  endMemberSession: { method: 'DELETE', path: '/members/sessions/{id}', answer: 'none' },
  listRoles: { method: 'GET', path: '/roles' },
  createRole: { method: 'POST', path: '/roles' },
  replaceRole: { method: 'PUT', path: '/roles/{id}' },
  deleteRole: { method: 'DELETE', path: '/roles/{id}', answer: 'none' },
  explainAccess: { method: 'POST', path: '/access/explain', reads: true },
  whoHasAccess: { method: 'GET', path: '/access/who' },

  tokenize: { method: 'POST', path: '/tokenize', keyed: true },
  detokenize: { method: 'POST', path: '/detokenize', reads: true },
  createToken: { method: 'POST', path: '/tokens', keyed: true },
  listTokens: { method: 'GET', path: '/tokens' },
  getToken: { method: 'GET', path: '/tokens/{id}' },
  updateToken: { method: 'PATCH', path: '/tokens/{id}', media: patch, keyed: true },
  deleteToken: { method: 'DELETE', path: '/tokens/{id}', answer: 'none' },
  revealToken: { method: 'POST', path: '/tokens/{id}/reveal', reads: true },
  searchTokens: { method: 'POST', path: '/tokens/search', reads: true },
  listTokensFrom: { method: 'GET', path: '/v2/tokens' },
  searchTokensFrom: { method: 'POST', path: '/v2/tokens/search', reads: true },

  createExport: { method: 'POST', path: '/exports' },
  getExport: { method: 'GET', path: '/exports/{id}' },
  approveExport: { method: 'POST', path: '/exports/{id}/approve', reads: true },
  // Called by Caller.stream.
  getExportContent: { method: 'GET', path: '/exports/{id}/content' },
  importTokens: { method: 'POST', path: '/imports', media: 'application/x-ndjson', reads: true, answer: 'text' },

  createReactor: { method: 'POST', path: '/reactors', keyed: true },
  listReactors: { method: 'GET', path: '/reactors' },
  getReactor: { method: 'GET', path: '/reactors/{id}' },
  replaceReactor: { method: 'PUT', path: '/reactors/{id}', keyed: true },
  patchReactor: { method: 'PATCH', path: '/reactors/{id}', media: patch, keyed: true, answer: 'none' },
  deleteReactor: { method: 'DELETE', path: '/reactors/{id}', answer: 'none' },
  react: { method: 'POST', path: '/reactors/{id}/react', keyed: true, runs: true },
  reactAsync: { method: 'POST', path: '/reactors/{id}/react-async', keyed: true },
  getReactorResult: { method: 'GET', path: '/reactors/{id}/results/{request_id}' },
  listReactorRuns: { method: 'GET', path: '/reactors/{id}/runs' },

  tryReactor: { method: 'POST', path: '/reactors/try', runs: true },
  listReactorVersions: { method: 'GET', path: '/reactors/{id}/versions' },
  restoreReactor: { method: 'POST', path: '/reactors/{id}/versions/{n}/restore', keyed: true },
  listProxyVersions: { method: 'GET', path: '/proxies/{id}/versions' },
  restoreProxy: { method: 'POST', path: '/proxies/{id}/versions/{n}/restore', keyed: true },

  createProxy: { method: 'POST', path: '/proxies', keyed: true },
  listProxies: { method: 'GET', path: '/proxies' },
  getProxy: { method: 'GET', path: '/proxies/{id}' },
  replaceProxy: { method: 'PUT', path: '/proxies/{id}', keyed: true },
  patchProxy: { method: 'PATCH', path: '/proxies/{id}', media: patch, keyed: true, answer: 'none' },
  deleteProxy: { method: 'DELETE', path: '/proxies/{id}', answer: 'none' },
  previewProxy: { method: 'POST', path: '/proxies/{id}/preview', reads: true },
  rotateProxyKey: { method: 'POST', path: '/proxies/{id}/rotate-key', keyed: true },
  // Called by Caller.forward, with any method.
  invokeProxy: { method: 'POST', path: '/proxy/{rest}' },

  getActivity: { method: 'GET', path: '/reports/activity' },
  listKeyReport: { method: 'GET', path: '/reports/keys' },
  listAccessReport: { method: 'GET', path: '/reports/access' },
  getAttention: { method: 'GET', path: '/reports/attention' },

  listLogs: { method: 'GET', path: '/logs' },
  listLogsFrom: { method: 'GET', path: '/v2/logs' },
  // Called by Caller.open: their answers are read as they come.
  streamLogs: { method: 'GET', path: '/v2/logs/stream' },
  exportLogs: { method: 'GET', path: '/logs/export' },
  getLogIntegrity: { method: 'GET', path: '/logs/integrity' },
  verifyLog: { method: 'POST', path: '/logs/verify', reads: true },
  getLogVerification: { method: 'GET', path: '/logs/verify/{id}' },
  listNames: { method: 'GET', path: '/names' },
  listEntityTypes: { method: 'GET', path: '/logs/entity-types' },

  listEvents: { method: 'GET', path: '/events' },
  createWebhook: { method: 'POST', path: '/webhooks', keyed: true },
  listWebhooks: { method: 'GET', path: '/webhooks' },
  getWebhook: { method: 'GET', path: '/webhooks/{id}' },
  replaceWebhook: { method: 'PUT', path: '/webhooks/{id}', keyed: true },
  deleteWebhook: { method: 'DELETE', path: '/webhooks/{id}', answer: 'none' },
  rotateWebhookSecret: { method: 'POST', path: '/webhooks/{id}/secret/rotate', keyed: true },
  testWebhook: { method: 'POST', path: '/webhooks/{id}/test' },
  listDeliveries: { method: 'GET', path: '/webhooks/{id}/deliveries' },
  resendDelivery: { method: 'POST', path: '/webhooks/{id}/deliveries/{delivery_id}/resend' },

  getHealth: { method: 'GET', path: '/healthz', open: true },
  getReadiness: { method: 'GET', path: '/readyz', open: true },
  getMetrics: { method: 'GET', path: '/metrics', open: true, answer: 'text' },
} as const satisfies Record<OperationId, Row>;

type Success<K extends OperationId> = keyof operations[K]['responses'] & (200 | 201 | 202 | 204);
type Content<R> = R extends { content: { 'application/json': infer T } } ? T : R extends { content: { 'text/plain': infer T } } ? T : R extends { content: { 'application/x-ndjson': infer T } } ? T : void;

/** What an operation answers with. */
export type Answer<K extends OperationId> = { [S in Success<K>]: Content<operations[K]['responses'][S]> }[Success<K>];

/** What an operation takes as its body. */
export type Input<K extends OperationId> = operations[K] extends { requestBody?: { content: infer C } } ? C[keyof C] : undefined;

/** What an operation takes in its query. */
export type Query<K extends OperationId> = NonNullable<operations[K]['parameters']['query']>;
