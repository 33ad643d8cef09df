import * as z from 'zod';
import { readSchema } from '../../src/sql/schema.ts';
import { CONDITIONAL_READ_HEADERS, ENTITY_TAG_HEADER, sendUnlessKnown } from '../entity-tags.ts';
import { type Endpoint, endpoint, LEASE_ERRORS, type Operation, type RouteContext, timeoutOf } from '../operation.ts';
import { warning } from '../reply-schemas.ts';
import { tenantOf } from '../request-context.ts';
import { noBody } from '../request-schemas.ts';

const text = z.string().nullable();
const definition = text.describe('Its query; null for a table');

const column = z.object({
  name: z.string(),
  type: z.string().describe('As SQL writes it; names of your own types are qualified'),
  notNull: z.boolean().describe('No row has NULL there; false while the constraint is NOT VALID'),
  default: text,
  identity: z.enum(['always', 'by default']).nullable(),
  generated: text.describe('The expression of a generated column'),
  generation: z.enum(['stored', 'virtual']).nullable().describe('When a generated column is computed: when it is written, or read'),
  collation: text.describe('null: the one of its type'),
  isDeterministic: z.boolean().describe('false: its collation takes texts that differ for equal'),
  comment: text,
});

const columns = z.array(z.string());
const constraint = { name: z.string(), definition: z.string().describe('As ALTER TABLE … ADD CONSTRAINT takes it') };
const key = z.object({ ...constraint, columns });

const referentialAction = z.enum(['no action', 'restrict', 'cascade', 'set null', 'set default']);

const foreignKey = z.object({
  ...constraint,
  columns,
  referencedSchema: z.string(),
  referencedTable: z.string(),
  referencedColumns: columns,
  onUpdate: referentialAction,
  onDelete: referentialAction,
  isTemporal: z.boolean().describe('The last column is a PERIOD: within those of the rows that it refers to, not equal to one'),
});

const index = z.object({
  name: z.string(),
  definition: z.string(),
  columns: z.array(z.string().nullable()).describe('What is indexed; null stands for an expression'),
  isUnique: z.boolean(),
  isPrimary: z.boolean(),
  isValid: z.boolean(),
  method: z.string(),
  bytes: z.int(),
  scans: z.int().nullable().describe('How often it was used; null where that is not known: in the schema placement'),
});

const policy = z.object({
  name: z.string(),
  command: z.enum(['all', 'select', 'insert', 'update', 'delete']),
  roles: z.array(z.string()),
  isPermissive: z.boolean(),
  using: text,
  check: text,
});

export const table = z.object({
  schema: z.string(),
  name: z.string(),
  kind: z.enum(['table', 'partitioned table', 'view', 'materialized view', 'foreign table']),
  comment: text,
  rowEstimate: z.int().nullable().describe('As of the last ANALYZE or VACUUM; null before the first'),
  totalBytes: z.int().describe('Of a partitioned table: of all its partitions'),
  tableBytes: z.int(),
  indexBytes: z.int(),
  columns: z.array(column),
  primaryKey: key.nullable(),
  unique: z.array(key),
  rowKey: columns
    .nullable()
    .describe('Columns that tell all rows apart, never NULL and exact: of the primary key or another unique index. null: there are none'),
  notNulls: z
    .array(z.object({ ...constraint, column: z.string() }))
    .describe('NOT NULL constraints: with names of their own since PostgreSQL 18, empty before'),
  checks: z.array(z.object({ ...constraint, expression: z.string() })),
  exclusions: z.array(z.object(constraint)),
  foreignKeys: z.array(foreignKey),
  indexes: z.array(index),
  rowSecurity: z.boolean(),
  isRowSecurityForced: z.boolean().describe('Its policies hold for its owner too'),
  policies: z.array(policy),
  triggers: z.array(z.object({ name: z.string(), definition: z.string(), isEnabled: z.boolean() })),
  definition,
  isUnlogged: z.boolean(),
  options: z.array(z.string()).describe('Storage parameters, and those of a view: security_invoker=true'),
  partitionKey: text,
  partitionOf: z.object({ schema: z.string(), name: z.string(), bound: z.string() }).nullable(),
  inherits: z.array(z.object({ schema: z.string(), name: z.string() })).describe('Tables whose columns it has by inheritance'),
  hasChildren: z.boolean().describe('Whoever reads it reads partitions too, or tables that have its columns by inheritance'),
});

const type = z.object({
  schema: z.string(),
  name: z.string(),
  kind: z.enum(['enum', 'domain', 'composite', 'range']),
  labels: z.array(z.string()).nullable().describe('Of an enum'),
  definition: text.describe('Of any other, as CREATE DOMAIN and CREATE TYPE take it'),
  comment: text,
});

const sequence = z.object({
  schema: z.string(),
  name: z.string(),
  type: z.string(),
  start: z.string().describe('A number, which may exceed 2^53, as are the following'),
  increment: z.string(),
  minValue: z.string(),
  maxValue: z.string(),
  cache: z.string(),
  isCycling: z.boolean(),
  ownedBy: z.object({ schema: z.string(), table: z.string(), column: z.string() }).nullable(),
});

const routine = z.object({
  schema: z.string(),
  name: z.string(),
  kind: z.enum(['function', 'procedure', 'aggregate', 'window']),
  arguments: z.string(),
  identityArguments: z.string().describe('What tells it from others of its name, as ALTER FUNCTION takes it'),
  returns: text,
  language: z.string(),
  volatility: z.enum(['immutable', 'stable', 'volatile']),
  isSecurityDefiner: z.boolean(),
  definition: text.describe('CREATE OR REPLACE …; null for an aggregate'),
  comment: text,
});

export const schemaReply = z.object({
  schemas: z.array(z.object({ name: z.string(), comment: text })),
  tables: z.array(table),
  types: z.array(type),
  collations: z.array(
    z.object({ schema: z.string(), name: z.string(), definition: z.string().describe('As CREATE COLLATION takes it'), comment: text }),
  ),
  sequences: z.array(sequence),
  functions: z.array(routine),
  extensions: z.array(z.object({ name: z.string(), version: z.string(), schema: z.string() })),
  isComplete: z.boolean().describe('false when there is more than is shown; warnings has details'),
  warnings: z.array(warning).optional(),
});

const SCHEMA_EXAMPLE: z.output<typeof schemaReply> = {
  schemas: [{ name: 'public', comment: null }],
  tables: [
    {
      schema: 'public',
      name: 'orders',
      kind: 'table',
      comment: null,
      rowEstimate: 2,
      totalBytes: 32_768,
      tableBytes: 16_384,
      indexBytes: 16_384,
      columns: [
        {
          name: 'id',
          type: 'bigint',
          notNull: true,
          default: null,
          identity: 'always',
          generated: null,
          generation: null,
          collation: null,
          isDeterministic: true,
          comment: null,
        },
        {
          name: 'total',
          type: 'numeric',
          notNull: true,
          default: '0',
          identity: null,
          generated: null,
          generation: null,
          collation: null,
          isDeterministic: true,
          comment: 'In euros',
        },
      ],
      primaryKey: { name: 'orders_pkey', columns: ['id'], definition: 'PRIMARY KEY (id)' },
      unique: [],
      rowKey: ['id'],
      notNulls: [
        { name: 'orders_id_not_null', definition: 'NOT NULL id', column: 'id' },
        { name: 'orders_total_not_null', definition: 'NOT NULL total', column: 'total' },
      ],
      checks: [{ name: 'orders_total_check', expression: '(total >= (0)::numeric)', definition: 'CHECK ((total >= (0)::numeric))' }],
      exclusions: [],
      foreignKeys: [],
      indexes: [
        {
          name: 'orders_pkey',
          definition: 'CREATE UNIQUE INDEX orders_pkey ON public.orders USING btree (id)',
          columns: ['id'],
          isUnique: true,
          isPrimary: true,
          isValid: true,
          method: 'btree',
          bytes: 16_384,
          scans: 7,
        },
      ],
      rowSecurity: false,
      isRowSecurityForced: false,
      policies: [],
      triggers: [],
      definition: null,
      isUnlogged: false,
      options: [],
      partitionKey: null,
      partitionOf: null,
      inherits: [],
      hasChildren: false,
    },
  ],
  types: [{ schema: 'public', name: 'mood', kind: 'enum', labels: ['sad', 'ok'], definition: null, comment: null }],
  collations: [
    {
      schema: 'public',
      name: 'caseless',
      definition: "(PROVIDER = icu, LOCALE = 'und-u-ks-level2', DETERMINISTIC = false)",
      comment: null,
    },
  ],
  sequences: [
    {
      schema: 'public',
      name: 'orders_id_seq',
      type: 'bigint',
      start: '1',
      increment: '1',
      minValue: '1',
      maxValue: '9223372036854775807',
      cache: '1',
      isCycling: false,
      ownedBy: { schema: 'public', table: 'orders', column: 'id' },
    },
  ],
  functions: [],
  extensions: [{ name: 'plpgsql', version: '1.0', schema: 'pg_catalog' }],
  isComplete: true,
};

/** The length of a name in PostgreSQL, in bytes. */
const NAME_MAX = 63;

const schemaQuery = z.strictObject({
  schema: z
    .string()
    .min(1)
    .max(NAME_MAX)
    .exactOptional()
    .meta({ description: 'Show only this schema', examples: ['public'] }),
});

const schema = {
  method: 'GET',
  path: '/api/schema',
  action: 'schema.read',
  operationId: 'readSchema',
  tag: 'Database',
  summary: 'Show what the database is made of',
  description:
    'Tables, views, columns, keys, indexes, policies, triggers, types, sequences, functions and extensions that the key may see, in one snapshot of the catalogs. Names in definitions are qualified. At most 10,000 of a kind, and 32 MiB.',
  needsKey: true,
  query: schemaQuery,
  headers: CONDITIONAL_READ_HEADERS,
  body: noBody,
  replies: { 200: { description: 'The schema.', schema: schemaReply, example: SCHEMA_EXAMPLE, headers: ENTITY_TAG_HEADER } },
  errors: ['not_found', 'lock_not_available', 'statement_timeout', 'response_too_large', ...LEASE_ERRORS],
} as const satisfies Operation;

export function schemaEndpoints({ router, config }: RouteContext): Endpoint[] {
  return [
    endpoint(schema, async ({ query, request, reply }) => {
      const { disconnect, results } = request.call;
      const lease = await router.lease(tenantOf(request), { door: 'http', disconnect });
      const { body, hash } = await readSchema(lease, {
        ...query,
        timeoutMs: timeoutOf(undefined, config, tenantOf(request)),
        disconnect,
        results,
      });
      return sendUnlessKnown(request, reply, body, hash);
    }),
  ];
}
