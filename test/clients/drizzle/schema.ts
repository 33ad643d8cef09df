import { sql } from 'drizzle-orm';
import {
  bigint,
  boolean,
  check,
  customType,
  date,
  doublePrecision,
  index,
  inet,
  integer,
  interval,
  jsonb,
  numeric,
  pgEnum,
  pgSchema,
  pgTable,
  pgView,
  text,
  timestamp,
  uniqueIndex,
  uuid,
  varchar,
} from 'drizzle-orm/pg-core';

const bytea = customType<{ data: Buffer }>({ dataType: () => 'bytea' });

export const mood = pgEnum('mood', ['sad', 'happy']);

export const authors = pgTable('authors', {
  id: integer('id').primaryKey().generatedAlwaysAsIdentity(),
  name: varchar('name', { length: 100 }).notNull().unique(),
  mood: mood('mood').default('happy'),
});

export const books = pgTable(
  'books',
  {
    id: uuid('id').primaryKey().defaultRandom(),
    authorId: integer('author_id')
      .notNull()
      .references(() => authors.id, { onDelete: 'cascade' }),
    title: text('title').notNull(),
    price: numeric('price', { precision: 12, scale: 2 }),
    copies: bigint('copies', { mode: 'bigint' }),
    weight: doublePrecision('weight'),
    lent: boolean('lent').notNull().default(false),
    tags: text('tags').array(),
    data: jsonb('data').$type<{ a: unknown[] }>(),
    cover: bytea('cover'),
    printedOn: date('printed_on'),
    addedAt: timestamp('added_at', { withTimezone: true, precision: 3 }).notNull().defaultNow(),
    lentFor: interval('lent_for'),
    from: inet('from'),
  },
  (table) => [
    index('by_title').on(table.title.desc()),
    uniqueIndex('once').on(table.authorId, table.title),
    check('affordable', sql`${table.price} >= 0`),
  ],
);

export const shelf = pgView('shelf').as((query) => query.select({ title: books.title }).from(books));

export const stock = pgSchema('stock');
export const places = stock.table('places', { id: integer('id').primaryKey(), name: text('name') });
