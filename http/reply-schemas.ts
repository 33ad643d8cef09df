import type { FastifyRequest } from 'fastify';
import * as z from 'zod';
import type { ApiKey } from '../src/catalog/key-rows.ts';
import type { RotatedKey } from '../src/catalog/keys.ts';
import { type Config, isHost } from '../src/config.ts';
import { nameOf } from './headers.ts';

/* Every reply of the JSON door, for the OpenAPI document. */

const instant = (description: string) => z.string().meta({ format: 'date-time', description });
const optionalText = z.string().nullable();

export const connection = z.object({
  host: z.string(),
  port: z.int(),
  user: z.string().describe('The organization id'),
  database: z.string().describe('The organization id'),
  sslmode: z.enum(['disable', 'prefer', 'require']),
});

const connectionString = (password: string) => z.string().describe(`The same as a URL for psql, drivers and ORMs, ${password}`);

const organizationId = z.string().describe('Also the user and the database of the wire door');
const keyId = z.string().describe('Names the key in the audit log; no secret');
const prefix = z.string().describe('First characters of the key');
const keyTimes = { createdAt: instant('When the key was made'), lastUsedAt: instant('To about a minute').nullable() };

/** A key, without the secret. */
export const key = z.object({
  keyId,
  prefix,
  name: z.string(),
  scope: z.enum(['admin', 'write', 'data', 'read']),
  ...keyTimes,
  createdBy: z.string().nullable().describe('The key that made it; null: the sign-up or an operator'),
  expiresAt: instant('Until when it is valid').nullable(),
  networks: z.array(z.string()).nullable().describe('The only addresses that it may be used from'),
  replacedBy: z.string().nullable().describe('The key that takes its place; this one ends at expiresAt'),
});

export const keysReply = z.object({ keys: z.array(key) });

export const createdKeyReply = key.extend({ apiKey: z.string().describe('Shown this once; keep it') });

export const revokedKeyReply = z.object({ keyId, revokedAt: instant('Since when it is dead') });

export const signupReply = z.object({
  apiKey: z.string().describe('Shown this once; keep it'),
  keyId,
  id: z.string().describe('Same as organizationId'),
  organizationId,
  orgName: z.string(),
  email: z.string(),
  createdAt: instant('When the organization signed up'),
  connection,
  connectionString: connectionString('with the key as its password'),
});

export const meReply = z.object({
  id: z.string().describe('Same as organizationId'),
  organizationId,
  orgName: z.string(),
  email: z.string(),
  createdAt: instant('When the organization signed up'),
  key: key.describe('The key that asks, and what it may do'),
  apiKey: z.object({ id: z.string(), prefix, ...keyTimes }).describe('Same as key, under older names'),
  connection,
  connectionString: connectionString('without a password: the key is only in the reply to the sign-up'),
  limits: z.object({
    statementTimeoutMs: z.int().describe('Where the request does not say'),
    maxStatementTimeoutMs: z.int().describe('The most that a request over HTTP may ask for'),
    wireStatementTimeoutMs: z.int().nullable().describe('At the wire door; null: no limit'),
    maxBodyBytes: z.int(),
    maxBodiesBytes: z.int().describe('Bodies of requests under way, together'),
    maxBodyValues: z.int().describe('Strings, numbers, arrays and so on in one body'),
    maxStatements: z.int(),
    maxParameters: z.int(),
    maxRequests: z.int().describe('Requests over HTTP under way at once, those that wait for a database session included'),
    maxRequestsPerSecond: z
      .int()
      .nullable()
      .describe('Requests over HTTP, on average; twice as many, and 10 at least, may come at once; null: no limit'),
    maxBackendSessions: z.int().describe('Database sessions at work at once, over both doors'),
    maxClientConnections: z.int().describe('Connections to the wire door at once'),
    maxDiskBytes: z.int().nullable().describe('How large the data may be; null: any size'),
  }),
  disk: z.object({
    usedBytes: z.int().nullable().describe('The size of the data, as of the last half minute; null: it cannot be told now'),
    isOverQuota: z.boolean().describe('The data is too large, and only what reads or makes room is possible'),
  }),
});

export const organizationReply = z.object({
  id: z.string().describe('Same as organizationId'),
  organizationId,
  name: z.string(),
  orgName: z.string().describe('Same as name'),
  email: z.string(),
  createdAt: instant('When the organization signed up'),
});

/** A copy of an organization. */
export const clone = z.object({
  organizationId,
  name: z.string(),
  status: z
    .enum(['provisioning', 'active', 'suspended', 'dropping'])
    .describe('provisioning: it is being made; dropping: it is being removed'),
  createdAt: instant('When it was made'),
  expiresAt: instant('When it is removed'),
});

export const clonesReply = z.object({ clones: z.array(clone) });

export const createdCloneReply = clone.extend({
  apiKey: z.string().describe('Shown this once; keep it'),
  keyId,
  connection,
  connectionString: connectionString('with the key as its password'),
});

export const organizationDeletionReply = z.object({
  organizationId,
  status: z.enum(['dropped', 'dropping']).describe('dropping: what is left is removed as soon as its last sessions have ended'),
});

export const rotateKeyReply = z.object({
  apiKey: z.string().describe('The new key, shown this once'),
  id: z.string().describe('Same as keyId'),
  keyId,
  organizationId,
  rotatedAt: instant('Since when the new key counts'),
  previousKey: z.object({ id: z.string(), keyId, prefix, invalidatedAt: instant('Since when the old key is dead') }),
});

export const warning = z.object({
  severity: z.string(),
  code: z.string(),
  message: z.string(),
  detail: z.string().optional(),
  hint: z.string().optional(),
  where: z.string().optional(),
});

export const field = z.object({ name: z.string(), dataTypeID: z.int().describe('OID of the type'), dataType: z.string() });

export const queryReply = z.object({
  rows: z.array(z.union([z.record(z.string(), z.unknown()), z.array(z.unknown())])),
  rowCount: z.int().nullable().describe('Rows returned or affected; null where the command has no such count'),
  command: z.string().describe('SELECT, INSERT, CREATE TABLE, …'),
  fields: z.array(field),
  rowAsArray: z.boolean(),
  durationMs: z.number(),
  warnings: z.array(warning).optional().describe('Notices of Postgres, and columns that hide one another'),
});

/** A line of a reply with one document a line. The error is a problem document. */
export const queryLine = z.union([
  queryReply.pick({ fields: true, rowAsArray: true }),
  z.object({ row: z.union([z.record(z.string(), z.unknown()), z.array(z.unknown())]) }),
  z.object({ complete: queryReply.pick({ rowCount: true, command: true, durationMs: true, warnings: true }) }),
  z.object({ error: z.lazy(() => problem) }),
]);

export const transactionReply = z.object({
  results: z.array(queryReply),
  status: z.enum(['committed', 'rolled_back']).describe('rolled_back if the request asked for that'),
  durationMs: z.number(),
});

export const migration = z.object({
  name: z.string(),
  status: z.enum(['applied', 'failed', 'rolled_back', 'dry_run']),
  appliedAt: instant('When it was applied, or tried'),
  checksum: z.string().describe('Of the SQL as sent'),
  durationMs: z.number(),
  statementCount: z.int(),
  statementsApplied: z.int(),
  isReversible: z.boolean().describe('It has rollbackSql'),
  rolledBackAt: instant('When it was undone; null: it was not').nullable(),
});

export const migrationWarning = warning.extend({
  statementIndex: z.int().optional(),
  line: z.int().optional(),
  column: z.int().optional(),
});

export const migrationReply = z.object({
  migration,
  alreadyApplied: z.boolean(),
  warnings: z.array(migrationWarning),
});

export const rollbackReply = z.object({
  migration,
  alreadyRolledBack: z.boolean(),
  warnings: z.array(migrationWarning),
});

export const migrationsReply = z.object({ migrations: z.array(migration) });

export const auditEntry = z.object({
  id: z.string(),
  seq: z.int().describe('Position in the chain of the organization, from 1'),
  occurredAt: instant('When it happened'),
  action: z.string(),
  surface: z.string().describe('http, wire or admin'),
  actor: z.object({ keyId: optionalText, keyPrefix: optionalText }),
  sourceIp: optionalText,
  userAgent: optionalText,
  applicationName: optionalText,
  requestId: optionalText,
  statement: z
    .object({ sql: z.string(), sqlHash: z.string(), command: optionalText, paramCount: z.int().nullable() })
    .optional()
    .describe(
      'Never with parameters; the SQL begins at its first token and is cut at 2,000 characters, secrets are masked; sqlHash is that of the whole',
    ),
  session: z.object({ statements: z.int(), bytesIn: z.int(), bytesOut: z.int(), reason: z.string() }).optional(),
  outcome: z.object({
    status: z.enum(['ok', 'error']),
    httpStatus: z.int().nullable(),
    sqlstate: optionalText,
    rowCount: z.int().nullable(),
    durationMs: z.number().nullable(),
  }),
  prevHash: z.string(),
  hash: z.string(),
});

export const auditReply = z.object({
  data: z.array(auditEntry),
  hasMore: z.boolean(),
  nextCursor: optionalText,
  unreadable: z
    .array(z.object({ fromSeq: z.int(), toSeq: z.int() }))
    .optional()
    .describe('Where entries should be that cannot be read, for they were changed in the database; GET /api/audit/verify tells more'),
});

export const auditVerifyReply = z.object({
  ok: z.boolean(),
  count: z.int().describe('Entries checked'),
  headSeq: z.int(),
  headHash: z.string(),
  firstBad: z.object({ seq: z.int(), id: z.string().optional(), reason: z.string() }).optional(),
});

export const healthReply = z.object({ status: z.string() });

// --- errors

const postgresPart = z.object({
  severity: z.string(),
  detail: z.string().optional(),
  hint: z.string().optional(),
  position: z.int().optional().describe('In characters of the statement, from 1'),
  line: z.int().optional().describe('Line of the position, from 1'),
  column: z.int().optional().describe('Column of the position, from 1'),
  internalPosition: z.int().optional(),
  internalQuery: z.string().optional(),
  where: z.string().optional(),
  schema: z.string().optional(),
  table: z.string().optional(),
  columnName: z.string().optional().describe('Table column that the error is about'),
  dataType: z.string().optional(),
  constraint: z.string().optional(),
});

/** @see https://www.rfc-editor.org/rfc/rfc9457 */
export const problem = z.object({
  type: z.string().describe('Where the error is described'),
  title: z.string(),
  status: z.int(),
  detail: z.string(),
  instance: z.string().describe('Path of the request'),
  code: z.string().describe('Stable name of the error'),
  sqlstate: z.string().optional(),
  error: z.string().describe('Same as title'),
  message: z.string(),
  hint: z.string().optional(),
  requestId: z.string(),
  retryable: z.boolean().describe('Nothing has happened; the same request may succeed later'),
  statementIndex: z.int().optional().describe('Which statement failed, from 0'),
  phase: z
    .enum(['statement', 'commit', 'rollback', 'repeat'])
    .optional()
    .describe('What failed: a statement, COMMIT, or in a dry run rollbackSql or the second run of sql'),
  line: z.int().optional().describe('Where the statement begins in the SQL of a migration, where the error is not one of Postgres: from 1'),
  column: z.int().optional(),
  statementsApplied: z.int().optional().describe('Of a migration without a transaction: so many statements went through, and stay'),
  transactionStatus: z.literal('rolled_back').optional(),
  postgres: postgresPart.optional(),
});

export type Problem = z.output<typeof problem>;

/** The address of the wire door in replies. */
export interface WireAddress {
  readonly host: string;
  readonly port: number;
  readonly sslmode: 'disable' | 'prefer' | 'require';
}

/** How an organization connects to the wire door: in parts, and as a URL. */
interface ConnectionDetails {
  readonly connection: WireAddress & { readonly user: string; readonly database: string };
  readonly connectionString: string;
}

/** @param apiKey undefined: the URL has no password */
export function connectionDetails(
  id: string,
  apiKey: string | undefined,
  { headers }: FastifyRequest,
  addressOf: (asked: string | undefined) => WireAddress,
): ConnectionDetails {
  const asked = nameOf(headers.host ?? '');
  const { host, port, sslmode } = addressOf(isHost(asked) ? asked : undefined);
  const userinfo = apiKey === undefined ? id : `${id}:${apiKey}`;
  const authority = `${host.includes(':') ? `[${host}]` : host}:${port}`;
  // If there is TLS, the URL demands it: a client that falls back to plain text could be made to by an attacker on the network.
  const mode = sslmode === 'disable' ? 'disable' : 'require';
  return {
    connection: { host, port, user: id, database: id, sslmode },
    connectionString: `postgres://${userinfo}@${authority}/${id}?sslmode=${mode}`,
  };
}

/**
 * Where clients find the wire door. They cannot connect to an unspecified address such as 0.0.0.0: they have reached another name.
 * @param asked the host that the client has sent its request to
 */
export function wireAddress(
  config: Config,
  door: { readonly port: number; readonly hasTls: boolean },
  asked: string | undefined,
): WireAddress {
  const host = config.POSTERN_PUBLIC_HOST ?? config.POSTERN_HOST;
  const isUnspecified = host === '0.0.0.0' || host === '::';
  return {
    host: isUnspecified ? (asked ?? 'localhost') : host,
    port: door.port,
    sslmode: !door.hasTls || config.POSTERN_TLS === 'off' ? 'disable' : config.POSTERN_TLS,
  };
}

export const EXAMPLE_KEY = 'pst_XXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXX';

export const ROTATED_EXAMPLE = {
  apiKey: EXAMPLE_KEY,
  id: 'key_1b5n9v3c7x0z',
  keyId: 'key_1b5n9v3c7x0z',
  organizationId: 'org_3k9x2m7q1a5z',
  rotatedAt: '2025-02-01T08:00:00.000Z',
  previousKey: {
    id: 'key_8h2f6d0s4p1w',
    keyId: 'key_8h2f6d0s4p1w',
    prefix: 'pst_4fT9aB',
    invalidatedAt: '2025-02-01T08:00:00.000Z',
  },
};

/** A key as replies show it. */
export function shownKey(key: Omit<ApiKey, 'verifier'>) {
  const { id, prefix, name, scope, createdAt, createdBy, expiresAt, networks, lastUsedAt, replacedBy } = key;
  return { keyId: id, prefix, name, scope, createdAt, createdBy, expiresAt, networks, lastUsedAt, replacedBy };
}

/** The reply to a rotation, at either path. */
export function rotatedReply(organizationId: string, { apiKey, key, previous }: RotatedKey & { readonly apiKey: string }) {
  const ids = { id: key.id, keyId: key.id, organizationId };
  return { apiKey, ...ids, rotatedAt: key.createdAt, previousKey: { ...previous, keyId: previous.id } };
}
