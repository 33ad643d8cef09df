import { z } from 'zod';
import type { JsonValue } from '../../src/sql/parameters/json-value.ts';
import type { DocumentedOperation } from '../routes/operation.ts';
import { MAX_PARAMETERS, MAX_STATEMENTS, noQuery } from '../routes/request-schemas.ts';

/** Requests as the client sends them. Unlike in other requests, unknown fields are ignored, because newer clients may send more. */
export const neonQuery = z.object({
  query: z.string().describe('One SQL statement; parameters are written $1, $2, …'),
  params: z
    .array(z.custom<JsonValue>(() => true))
    .max(MAX_PARAMETERS)
    .default([])
    .describe("Values for $1, $2, …, in Postgres' text format"),
  arrayMode: z.boolean().nullish().describe('Rows as arrays; as the header Neon-Array-Mode says, if there is none'),
});

export const neonBatch = z.object({ queries: z.array(neonQuery).max(MAX_STATEMENTS).describe('Run as one transaction') });

export const neonRequest = z.union([neonQuery, neonBatch]);

const row = z.union([z.record(z.string(), z.unknown()), z.array(z.unknown())]);

export const neonResult = z.object({
  fields: z.array(
    z.object({
      name: z.string(),
      dataTypeID: z.int(),
      tableID: z.int(),
      columnID: z.int(),
      dataTypeSize: z.int(),
      dataTypeModifier: z.int(),
      format: z.literal('text'),
    }),
  ),
  rowAsArray: z.boolean(),
  rows: z.array(row),
  command: z.string().describe('The first word of the command tag'),
  rowCount: z.int().nullable(),
});

/** For one query and for several. */
export const neonReply = z.union([neonResult, z.object({ results: z.array(neonResult) })]);

export const neonError = z.object({
  message: z.string(),
  severity: z.string().nullable(),
  code: z.string().nullable().describe('SQLSTATE'),
  detail: z.string().nullable(),
  hint: z.string().nullable(),
  position: z.string().nullable(),
  internalPosition: z.string().nullable(),
  internalQuery: z.string().nullable(),
  where: z.string().nullable(),
  schema: z.string().nullable(),
  table: z.string().nullable(),
  column: z.string().nullable(),
  dataType: z.string().nullable(),
  constraint: z.string().nullable(),
  file: z.string().nullable(),
  line: z.string().nullable(),
  routine: z.string().nullable(),
});

const NOTHING = Object.fromEntries(Object.keys(neonError.shape).map((name) => [name, null]));
const exampleError = (message: string, code: string) => ({ ...NOTHING, message, severity: 'ERROR', code });
const flag = (description: string) => z.enum(['true', 'false']).exactOptional().describe(description);

/** What `route.ts` serves, for the OpenAPI document. */
export const neonOperation = {
  method: 'POST',
  path: '/sql',
  operationId: 'neonSql',
  tag: 'Serverless drivers',
  summary: 'What @neondatabase/serverless sends',
  description:
    "One statement, or several as one transaction, with the headers, bodies and errors of Neon's driver. The key may also be the password of the connection string in Neon-Connection-String. The body is JSON, whatever its Content-Type says.",
  needsKey: true,
  query: noQuery,
  headers: {
    'Neon-Connection-String': z.string().exactOptional().describe('postgres://organization:key@host/organization'),
    'Neon-Raw-Text-Output': flag("true: all values are strings in Postgres' text format"),
    'Neon-Array-Mode': flag('true: rows as arrays'),
    'Neon-Batch-Isolation-Level': z.enum(['ReadUncommitted', 'ReadCommitted', 'RepeatableRead', 'Serializable']).exactOptional(),
    'Neon-Batch-Read-Only': flag('true: a transaction that only reads'),
    'Neon-Batch-Deferrable': flag('true: with Serializable and read-only, wait for a snapshot that cannot fail'),
  },
  body: neonRequest,
  bodyExample: { query: 'select 1 as id where $1 > 0', params: ['1'] },
  replies: {
    200: {
      description: 'The result, or the results.',
      schema: neonReply,
      example: {
        fields: [{ name: 'id', dataTypeID: 23, tableID: 0, columnID: 0, dataTypeSize: 4, dataTypeModifier: -1, format: 'text' }],
        rowAsArray: false,
        rows: [{ id: 1 }],
        command: 'SELECT',
        rowCount: 1,
      },
    },
  },
  errors: [],
  ownErrors: {
    400: { description: 'Nearly every error.', schema: neonError, example: exampleError('syntax error at or near "selec"', '42601') },
    413: { description: 'The body is too large.', schema: neonError, example: exampleError('request is too large', '54000') },
    500: { description: 'An internal error.', schema: neonError, example: exampleError('internal error', 'XX000') },
    507: { description: 'The result is too large.', schema: neonError, example: exampleError('response is too large', '54000') },
  },
} as const satisfies DocumentedOperation;
