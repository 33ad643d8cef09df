import { z } from 'zod';
import { printable, sql } from '../request-schemas.ts';

const SQL_MAX_BYTES = 65_536;
const NAME_MAX_CHARACTERS = 100;
const DESCRIPTION_MAX_CHARACTERS = 1_000;

/** A segment of the path. `.` and `..` would be taken for parts of the path itself. */
export const queryName = z.strictObject({
  name: z
    .string()
    .max(NAME_MAX_CHARACTERS)
    .transform((name) => name.normalize('NFC').trim())
    .pipe(z.string().min(1).refine(printable, 'must not contain control characters'))
    .refine((name) => name !== '.' && name !== '..', 'must not be "." or ".."'),
});

export const saveQueryRequest = z.strictObject({
  sql: sql
    .refine((text) => Buffer.byteLength(text) <= SQL_MAX_BYTES, `must be at most ${SQL_MAX_BYTES} bytes`)
    .meta({ description: 'SQL text, which is not run', examples: ['select * from orders'], maxLength: SQL_MAX_BYTES }),
  description: z
    .string()
    .trim()
    .max(DESCRIPTION_MAX_CHARACTERS)
    .refine((text) => !text.includes('\0'), 'must not contain a NUL character')
    .nullable()
    .default(null)
    .meta({ examples: ['For the monthly report'] }),
});

export const savedQuery = z.object({
  name: z.string(),
  sql: z.string(),
  description: z.string().nullable(),
  createdAt: z.string(),
  updatedAt: z.string(),
  updatedBy: z.string().describe('The keyId of the key that changed it last'),
});

export const savedQueries = z.object({ queries: z.array(savedQuery) });

export const deletedQuery = z.object({ name: z.string(), deletedAt: z.string() });
