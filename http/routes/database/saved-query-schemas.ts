import { z } from 'zod';
import { readable, sql } from '../request-schemas.ts';

const SQL_MAX_BYTES = 65_536;
const NAME_MAX_CHARACTERS = 100;
const DESCRIPTION_MAX_CHARACTERS = 1_000;

/** A segment of the path. `.` and `..` would be taken for parts of the path itself. */
const nameIn = (names: z.ZodType<string, string>) =>
  z.strictObject({
    name: z
      .string()
      .max(NAME_MAX_CHARACTERS)
      .transform((name) => name.normalize('NFC').trim())
      .pipe(names)
      .refine((name) => name !== '.' && name !== '..', 'must not be "." or ".."'),
  });

/** What was saved under other rules can still be read and deleted. */
export const queryName = nameIn(
  z
    .string()
    .min(1)
    .refine((name) => !/[\p{Cc}\p{Surrogate}]/u.test(name), 'must not contain control characters'),
);
export const newQueryName = nameIn(readable(z.string().min(1)));

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
