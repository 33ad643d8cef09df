import { z } from 'zod';
import { warning } from '../../responses/reply-schemas.ts';

const text = z.string().nullable();
const definition = text.describe('Its query; null for a table');

const column = z.object({
  name: z.string(),
  type: z.string().describe('As SQL writes it; names of your own types are qualified'),
  notNull: z.boolean(),
  default: text,
  identity: z.enum(['always', 'by default']).nullable(),
  generated: text.describe('The expression of a generated column'),
  comment: text,
});

const columns = z.array(z.string());
const key = z.object({ name: z.string(), columns });

const referentialAction = z.enum(['no action', 'restrict', 'cascade', 'set null', 'set default']);

const foreignKey = z.object({
  name: z.string(),
  columns,
  referencedSchema: z.string(),
  referencedTable: z.string(),
  referencedColumns: columns,
  onUpdate: referentialAction,
  onDelete: referentialAction,
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
  checks: z.array(z.object({ name: z.string(), expression: z.string() })),
  foreignKeys: z.array(foreignKey),
  indexes: z.array(index),
  rowSecurity: z.boolean(),
  policies: z.array(policy),
  triggers: z.array(z.object({ name: z.string(), definition: z.string(), isEnabled: z.boolean() })),
  definition,
  partitionKey: text,
  partitionOf: z.object({ schema: z.string(), name: z.string(), bound: z.string() }).nullable(),
});

const type = z.object({
  schema: z.string(),
  name: z.string(),
  kind: z.enum(['enum', 'domain', 'composite', 'range']),
  labels: z.array(z.string()).nullable().describe('Of an enum'),
  definition: text.describe('Of any other'),
  comment: text,
});

const sequence = z.object({
  schema: z.string(),
  name: z.string(),
  type: z.string(),
  ownedBy: z.object({ schema: z.string(), table: z.string(), column: z.string() }).nullable(),
});

const routine = z.object({
  schema: z.string(),
  name: z.string(),
  kind: z.enum(['function', 'procedure', 'aggregate', 'window']),
  arguments: z.string(),
  returns: text,
  language: z.string(),
  volatility: z.enum(['immutable', 'stable', 'volatile']),
  isSecurityDefiner: z.boolean(),
  comment: text,
});

export const schemaReply = z.object({
  schemas: z.array(z.object({ name: z.string(), comment: text })),
  tables: z.array(table),
  types: z.array(type),
  sequences: z.array(sequence),
  functions: z.array(routine),
  extensions: z.array(z.object({ name: z.string(), version: z.string(), schema: z.string() })),
  isComplete: z.boolean().describe('false when there is more than is shown; warnings has details'),
  warnings: z.array(warning).optional(),
});

export const SCHEMA_EXAMPLE: z.output<typeof schemaReply> = {
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
        { name: 'id', type: 'bigint', notNull: true, default: null, identity: 'always', generated: null, comment: null },
        { name: 'total', type: 'numeric', notNull: true, default: '0', identity: null, generated: null, comment: 'In euros' },
      ],
      primaryKey: { name: 'orders_pkey', columns: ['id'] },
      unique: [],
      checks: [{ name: 'orders_total_check', expression: '(total >= (0)::numeric)' }],
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
      policies: [],
      triggers: [],
      definition: null,
      partitionKey: null,
      partitionOf: null,
    },
  ],
  types: [{ schema: 'public', name: 'mood', kind: 'enum', labels: ['sad', 'ok'], definition: null, comment: null }],
  sequences: [{ schema: 'public', name: 'orders_id_seq', type: 'bigint', ownedBy: { schema: 'public', table: 'orders', column: 'id' } }],
  functions: [],
  extensions: [{ name: 'plpgsql', version: '1.0', schema: 'pg_catalog' }],
  isComplete: true,
};
