import type { Scene } from './scene.ts';

/** A request that makes out to be somebody else's, or would have what is somebody else's. */
export interface RequestAttack {
  readonly way: string;
  readonly request: (scene: Scene) => {
    readonly method?: string;
    readonly path?: string;
    readonly headers?: Readonly<Record<string, string>>;
    readonly body?: unknown;
  };
  /** Status and `code` of the refusal, or what a reply to nobody but the intruder itself has in it. */
  readonly answer: readonly [status: number, code: string] | ((scene: Scene) => unknown);
}

const WHO = { sql: 'SELECT current_user::text AS who' };
const bearer = (token: string) => ({ authorization: `Bearer ${token}` });
const basic = (user: string, password: string) => ({ authorization: `Basic ${Buffer.from(`${user}:${password}`).toString('base64')}` });
const itself = ({ intruder }: Scene) => ({ rows: [{ who: intruder.id }] });
const noEntries = () => ({ data: [] });

/** What `@neondatabase/serverless` sends. */
const neon = (user: string, key: string, database: string) => ({
  'neon-connection-string': `postgres://${user}:${key}@db.example/${database}`,
});
const NEON_WHO = { query: 'SELECT current_user::text AS who', params: [] };

export const REQUEST_ATTACKS: readonly RequestAttack[] = [
  {
    way: 'by naming another in a header',
    request: ({ intruder, victim }) => ({
      headers: {
        ...bearer(intruder.apiKey),
        'x-organization-id': victim.id,
        'x-postern-organization': victim.id,
        'x-forwarded-user': victim.id,
      },
      body: WHO,
    }),
    answer: itself,
  },
  {
    way: 'by naming another in the query string',
    request: ({ intruder, victim }) => ({
      path: `/api/query?organization=${victim.id}&database=${victim.id}&role=${victim.id}`,
      headers: bearer(intruder.apiKey),
      body: WHO,
    }),
    answer: [400, 'invalid_request'],
  },
  ...['database', 'user', 'role', 'organizationId', 'searchPath', 'options'].map(
    (field): RequestAttack => ({
      way: `by the field ${field}`,
      request: ({ intruder, victim }) => ({ headers: bearer(intruder.apiKey), body: { ...WHO, [field]: victim.id } }),
      answer: [400, 'invalid_request'],
    }),
  ),
  {
    way: 'by a field that every object has',
    request: ({ intruder, victim }) => ({
      headers: bearer(intruder.apiKey),
      body: `{"sql": "SELECT current_user::text AS who", "__proto__": {"tenant": "${victim.id}"}}`,
    }),
    answer: [400, 'invalid_request'],
  },
  { way: 'by no key', request: () => ({ body: WHO }), answer: [401, 'unauthorized'] },
  {
    way: 'by the id of another as key',
    request: ({ victim }) => ({ headers: bearer(victim.id), body: WHO }),
    answer: [401, 'unauthorized'],
  },
  {
    way: "by the beginning of another's key, which audit logs show",
    request: ({ victim }) => ({ headers: bearer(victim.apiKey.slice(0, 10)), body: WHO }),
    answer: [401, 'unauthorized'],
  },
  {
    way: "by another's key with other letters at its end",
    request: ({ victim, intruder }) => ({ headers: bearer(victim.apiKey.slice(0, 34) + intruder.apiKey.slice(34)), body: WHO }),
    answer: [401, 'unauthorized'],
  },
  {
    way: 'by another as user and its own key as password',
    request: ({ victim, intruder }) => ({ headers: basic(victim.id, intruder.apiKey), body: WHO }),
    answer: [401, 'unauthorized'],
  },
  {
    way: 'by two keys',
    request: ({ intruder }) => ({ headers: { authorization: `Bearer ${intruder.apiKey}, Bearer ${intruder.apiKey}` }, body: WHO }),
    answer: [401, 'unauthorized'],
  },
  {
    way: "by the key of another in the body's place",
    request: ({ intruder, victim }) => ({
      path: '/api/audit/verify',
      method: 'GET',
      headers: { ...bearer(intruder.apiKey), cookie: `apiKey=${victim.apiKey}` },
    }),
    answer: () => ({ ok: true }),
  },
  {
    way: "by another's connection string with its own key",
    request: ({ intruder, victim }) => ({ path: '/sql', headers: neon(victim.id, intruder.apiKey, victim.id), body: NEON_WHO }),
    answer: [400, '28P01'],
  },
  {
    way: 'by a connection string to the database of another',
    request: ({ intruder, victim }) => ({ path: '/sql', headers: neon(intruder.id, intruder.apiKey, victim.id), body: NEON_WHO }),
    answer: [400, '3D000'],
  },
  {
    way: 'by a connection string to the shared database',
    request: ({ intruder }) => ({ path: '/sql', headers: neon(intruder.id, intruder.apiKey, 'postern_shared'), body: NEON_WHO }),
    answer: [400, '3D000'],
  },
  {
    way: 'by a connection string with options',
    request: ({ intruder, victim }) => ({
      path: '/sql',
      headers: neon(intruder.id, intruder.apiKey, `${intruder.id}?options=-c%20role%3D${victim.id}`),
      body: NEON_WHO,
    }),
    answer: [400, '0A000'],
  },
  {
    way: "by its own key with another's connection string",
    request: ({ intruder, victim }) => ({
      path: '/sql',
      headers: { ...bearer(intruder.apiKey), ...neon(victim.id, 'unknown', victim.id) },
      body: NEON_WHO,
    }),
    answer: itself,
  },
  {
    way: 'by a second statement behind a NUL',
    request: ({ intruder, victim }) => ({ headers: bearer(intruder.apiKey), body: { sql: `SELECT 1\0; SET ROLE ${victim.id}` } }),
    answer: [400, 'invalid_request'],
  },
  {
    way: 'by a second statement',
    request: ({ intruder, victim }) => ({ headers: bearer(intruder.apiKey), body: { sql: `SELECT 1; SET ROLE ${victim.id}` } }),
    answer: [400, 'sql_error'],
  },
  {
    way: 'by a parameter that would be SQL',
    request: ({ intruder, victim }) => ({
      headers: bearer(intruder.apiKey),
      body: { sql: 'SELECT $1::text AS who', params: [`'; SET ROLE ${victim.id}; --`] },
    }),
    answer: ({ victim }) => ({ rows: [{ who: `'; SET ROLE ${victim.id}; --` }] }),
  },
  {
    way: "by the request id of another's request in the audit log",
    request: ({ intruder }) => ({ method: 'GET', path: '/api/audit?requestId=of-the-victim', headers: bearer(intruder.apiKey) }),
    answer: noEntries,
  },
  {
    way: 'by the audit log of another',
    request: ({ intruder, victim }) => ({
      method: 'GET',
      path: `/api/audit?organizationId=${victim.id}`,
      headers: bearer(intruder.apiKey),
    }),
    answer: [400, 'invalid_request'],
  },
  {
    way: 'by a filter of the audit log that would be SQL',
    request: ({ intruder, victim }) => ({
      path: '/api/audit',
      headers: bearer(intruder.apiKey),
      body: { requestId: `' OR organization_id = '${victim.id}' --` },
    }),
    answer: noEntries,
  },
  {
    way: 'by the migrations of another',
    request: ({ intruder }) => ({ method: 'GET', path: '/api/migrations', headers: bearer(intruder.apiKey) }),
    answer: () => ({ migrations: [] }),
  },
  {
    way: "by another's Idempotency-Key",
    request: ({ intruder }) => ({ headers: { ...bearer(intruder.apiKey), 'idempotency-key': 'of-the-victim' }, body: WHO }),
    answer: itself,
  },
  {
    way: 'by the metrics',
    request: ({ intruder }) => ({ method: 'GET', path: '/metrics', headers: bearer(intruder.apiKey) }),
    answer: [404, 'not_found'],
  },
];
