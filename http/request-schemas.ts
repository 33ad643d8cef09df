import * as z from 'zod';
import { normalNetwork } from '../src/auth/tokens.ts';
import { AUDIT_ACTIONS } from '../src/catalog/audit/records.ts';
import { CHARACTER_RULES, EMAIL_MAX_BYTES, NAME_RULES, parseEmail } from '../src/catalog/organization.ts';
import type { JsonValue } from '../src/sql/parameters.ts';

/*
 * Every request of the JSON door; its replies are in ../responses/reply-schemas.ts. Requests are validated with these, the OpenAPI document
 * is generated from them, and nothing else describes the API. A field that is not listed is refused by its name.
 */

export const MAX_PARAMETERS = 65_535;
export const MAX_STATEMENTS = 1_000;
const MAX_TIMEOUT_MS = 300_000;

/** Only the beginning of a text is checked for being blank; running a blank text is refused later. */
const BLANK_MAX_CHARACTERS = 65_536;
const isBlank = (text: string) => text.length <= BLANK_MAX_CHARACTERS && text.trim() === '';

export const sql = z
  .string()
  .refine((text) => !isBlank(text), 'must not be empty')
  .refine((text) => !text.includes('\0'), 'must not contain a NUL character')
  .meta({ minLength: 1 });

const oneStatement = sql.meta({
  description: 'One SQL statement; parameters are written $1, $2, …',
  examples: ['select id, total from orders where customer = $1'],
});

/** Any JSON value. It is neither checked nor copied here, because its type is known only after Postgres has described the parameter. */
const jsonValue = z.custom<JsonValue>(() => true);

const params = z
  .array(jsonValue)
  .max(MAX_PARAMETERS)
  .exactOptional()
  .meta({
    examples: [[1, 'ada']],
    description:
      'Values for $1, $2, …: encoded by the type Postgres gives each parameter. Arrays and objects become JSON for json/jsonb and array literals for array types; integers of any size keep their digits.',
  });

const rowMode = z
  .enum(['object', 'array'])
  .default('object')
  .describe('Rows as objects by column name, or as arrays (which keep two columns of one name apart)');

const timeoutMs = z
  .int()
  .min(1)
  .max(MAX_TIMEOUT_MS)
  .exactOptional()
  .meta({ examples: [5_000] })
  .describe('How long the database may take; the service sets a default of its own (usually 30,000)');

const readOnly = z.boolean().default(false).describe('Run in a READ ONLY transaction: writes are refused by Postgres');

const SETTINGS_MAX = 32;
const SETTING_MAX_CHARACTERS = 8_192;
const SETTING_NAME_MAX_CHARACTERS = 127;
/** What PostgreSQL takes for the name of a customized option. */
const SETTING_NAME = /^[A-Za-z_][A-Za-z0-9_$]*(?:\.[A-Za-z_][A-Za-z0-9_$]*)+$/;

function areSettings(value: unknown): boolean {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return false;
  let count = 0;
  for (const name in value) {
    count += 1;
    if (count > SETTINGS_MAX || name.length > SETTING_NAME_MAX_CHARACTERS || !SETTING_NAME.test(name)) return false;
    const text = (value as Readonly<Record<string, unknown>>)[name];
    if (typeof text !== 'string' || text.length > SETTING_MAX_CHARACTERS || text.includes('\0')) return false;
  }
  return true;
}

const settings = z
  .custom<Readonly<Record<string, string>>>(
    areSettings,
    `must be an object of at most ${SETTINGS_MAX} settings whose names have a dot, with strings of at most ${SETTING_MAX_CHARACTERS} characters`,
  )
  .exactOptional()
  .meta({
    type: 'object',
    maxProperties: SETTINGS_MAX,
    propertyNames: { maxLength: SETTING_NAME_MAX_CHARACTERS, pattern: SETTING_NAME.source },
    additionalProperties: { type: 'string', maxLength: SETTING_MAX_CHARACTERS },
    examples: [{ 'app.user_id': '42' }],
    description:
      'Settings whose names have a dot, for this call alone: set before its statements, which run in one transaction with them. Policies of row security read them with current_setting.',
  });

const ISOLATION_LEVELS = ['read uncommitted', 'read committed', 'repeatable read', 'serializable'] as const;

const isolationLevel = z
  .string()
  .transform((text) => text.toLowerCase().replaceAll(/[_-]/g, ' '))
  .pipe(z.enum(ISOLATION_LEVELS))
  .exactOptional()
  .meta({ enum: ISOLATION_LEVELS, description: 'As in SET TRANSACTION ISOLATION LEVEL' });

/** A name of anything: people must be able to tell it from others. */
export const readable = (name: z.ZodString) => CHARACTER_RULES.reduce((text, { message, isKept }) => text.refine(isKept, message), name);

const orgName = NAME_RULES.reduce((text, { message, isKept }) => text.refine(isKept, message), z.string().trim()).meta({
  minLength: 1,
  maxLength: 100,
  description: 'For people to read; never an identifier',
  examples: ['Acme'],
});

const email = z
  .string()
  .trim()
  .max(EMAIL_MAX_BYTES)
  // Behind a transformation it would not be among what may be sent.
  .meta({ examples: ['a@acme.test'] })
  .transform(parseEmail)
  .pipe(z.string('must be a valid e-mail address'))
  .meta({
    format: 'idn-email',
    maxLength: EMAIL_MAX_BYTES,
    description: 'Unique, whatever the case of its letters; the domain is stored in lower case',
  });

export const signupRequest = z.strictObject({
  orgName,
  email,
  invite: z
    .string()
    .trim()
    .min(1)
    .max(100)
    .exactOptional()
    .meta({ description: 'An invitation, where sign-up needs one; it can be used once', examples: [`inv_${'X'.repeat(36)}`] }),
});

export const organizationChanges = z
  .strictObject({ name: orgName.exactOptional(), email: email.exactOptional() })
  .refine(({ name, email }) => name !== undefined || email !== undefined, 'must have a name or an email');

export const organizationDeletion = z.strictObject({
  confirm: z
    .string()
    .max(100)
    .meta({ description: "The organization's id, to show that it is meant", examples: ['org_3k9x2m7q1a5z'] }),
});

export const rotateKeyRequest = z
  .strictObject({
    graceSeconds: z.int().min(0).max(2_592_000).exactOptional().describe('How long the old key stays valid beside the new one; default 0'),
  })
  .optional();

const keyName = readable(z.string().trim().min(1).max(100)).meta({ description: 'For people to read', examples: ['nightly job'] });

const expiresAt = z.iso
  .datetime({ offset: true })
  .meta({ description: 'Until when it is valid, by the clock of the control database', examples: ['2100-01-01T00:00:00Z'] });

const network = z
  .string()
  .max(64)
  .meta({ examples: ['203.0.113.0/24'] })
  .refine((text) => normalNetwork(text) !== undefined, 'must be an address or a CIDR range')
  .transform((text) => normalNetwork(text) ?? text);

const networks = z.array(network).min(1).max(32).describe('The only addresses that it may be used from, in CIDR notation');

const keyScope = z
  .enum(['admin', 'write', 'data', 'read'])
  .describe(
    'admin: everything, also with keys; write: SQL as the owner of the data; data: SQL as a role that may read and change rows, and owns nothing; read: SQL as a role that may only read them',
  );

export const consoleSignInRequest = z.strictObject({
  token: z.string().min(1).max(100).describe("What stands behind `#/sign-in/` in the console's address"),
  name: keyName.exactOptional(),
});

export const createKeyRequest = z.strictObject({
  name: keyName,
  scope: keyScope,
  expiresAt: expiresAt.exactOptional(),
  networks: networks.exactOptional(),
});

export const updateKeyRequest = z.strictObject({
  name: keyName.exactOptional(),
  expiresAt: expiresAt.nullable().exactOptional(),
  networks: networks.nullable().exactOptional(),
});

export const createCloneRequest = z
  .strictObject({
    name: orgName.exactOptional(),
    expiresAt: z.iso
      .datetime({ offset: true })
      .meta({ description: 'When it is removed, by the clock of the control database', examples: ['2100-01-01T00:00:00Z'] })
      .exactOptional(),
  })
  .optional();

export const queryRequest = z.strictObject({ sql: oneStatement, params, rowMode, timeoutMs, readOnly, settings });

export type QueryBody = z.output<typeof queryRequest>;

/** The result of {@link queryRequest} for a body that has only `sql` and perhaps `params`. */
export function usualQuery(body: unknown): QueryBody | undefined {
  if (typeof body !== 'object' || body === null || Array.isArray(body)) return undefined;
  for (const key in body) if (key !== 'sql' && key !== 'params') return undefined;
  const { sql, params = NO_PARAMS } = body as { readonly sql?: unknown; readonly params?: unknown };
  if (typeof sql !== 'string' || isBlank(sql) || sql.includes('\0')) return undefined;
  if (!Array.isArray(params) || params.length > MAX_PARAMETERS) return undefined;
  return { sql, params, rowMode: 'object', readOnly: false };
}

const NO_PARAMS: JsonValue[] = [];

export const transactionRequest = z.strictObject({
  statements: z
    .array(z.strictObject({ sql: oneStatement, params }))
    .min(1)
    .max(MAX_STATEMENTS),
  isolationLevel,
  readOnly,
  deferrable: z.boolean().default(false).describe('With serializable and readOnly: wait for a snapshot that cannot fail'),
  rollback: z.boolean().default(false).describe('Run everything, check deferred constraints, then roll it back: a trial'),
  rowMode,
  timeoutMs,
  settings,
});

export const migrationRequest = z.strictObject({
  name: readable(z.string().trim().min(1).max(200)).meta({
    description: 'Identifies the migration in the organization',
    examples: ['2025-01-31-orders'],
  }),
  sql: sql.meta({ description: 'Any number of statements', examples: ['create table orders (id bigint primary key)'] }),
  dryRun: z.boolean().default(false).describe('Run everything, then roll it back'),
  transaction: z.boolean().default(true).describe('false: statement by statement, for CREATE INDEX CONCURRENTLY and the like'),
  rollbackSql: sql.exactOptional().meta({
    description: 'SQL that undoes it; with dryRun it is proved by running forward, back and forward again',
    examples: ['drop table orders'],
  }),
  timeoutMs,
});

export const rollbackRequest = z
  .strictObject({
    dryRun: z.boolean().default(false).describe('Run everything, then roll it back'),
    force: z.boolean().default(false).describe('Also if others have been applied after it'),
    timeoutMs,
  })
  .optional();

const EXAMPLE_INSTANT = '2025-01-31T09:30:00Z';

const auditFilters = z.strictObject({
  limit: z.int().min(1).max(1_000).default(50).describe('Entries a page'),
  after: z
    .string()
    .min(1)
    .max(200)
    .exactOptional()
    .meta({ description: 'nextCursor of the page before', examples: ['…'] }),
  action: z
    .enum(AUDIT_ACTIONS)
    .exactOptional()
    .meta({ description: 'What was done', examples: ['query'] }),
  outcome: z.enum(['ok', 'error']).exactOptional(),
  since: z.iso
    .datetime({ offset: true })
    .exactOptional()
    .meta({ description: 'From this instant on', examples: [EXAMPLE_INSTANT] }),
  until: z.iso
    .datetime({ offset: true })
    .exactOptional()
    .meta({ description: 'Before this instant', examples: [EXAMPLE_INSTANT] }),
  requestId: z
    .string()
    .min(1)
    .max(128)
    .exactOptional()
    .meta({ examples: ['5f0d7a52-3d3f-4a44-9a0e-7c1f6a2f5f6e'] }),
});

/** A missing body means no filters. */
export const auditSearch = auditFilters.prefault({});

/** The same filters in a query string, where the limit arrives as text. */
export const auditQuery = auditFilters.extend({
  limit: z
    .string()
    .regex(/^\d{1,4}$/, 'must be a whole number')
    .transform(Number)
    .pipe(z.number().min(1).max(1_000))
    .default(50)
    .meta({ type: 'integer', minimum: 1, maximum: 1_000, default: 50, description: 'Entries a page' }),
});

export type AuditFilters = z.output<typeof auditFilters>;

export const noQuery = z.strictObject({});

export const noBody = z.undefined();
