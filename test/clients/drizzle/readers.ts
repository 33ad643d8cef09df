import { integer, pgTable, text } from 'drizzle-orm/pg-core';

/** What comes later. */
export const readers = pgTable('readers', { id: integer('id').primaryKey(), name: text('name').notNull() });
