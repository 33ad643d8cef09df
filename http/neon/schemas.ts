import { z } from 'zod';
import type { JsonValue } from '../../src/sql/parameters.ts';
import { MAX_PARAMETERS, MAX_STATEMENTS } from '../routes/request-schemas.ts';

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
