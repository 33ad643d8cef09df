import type { Schema } from '../../../api/database-schema.ts';
import { qualifiedName, quoteIdentifier } from '../../../quoting/quote-identifier.ts';
import { createSequence } from './sequence-ddl.ts';
import { tableDdl } from './table-ddl.ts';
import { functionDdl, typeDdl } from './type-and-function-ddl.ts';

interface Piece {
  /** How others mention it. */
  readonly name: string;
  readonly statements: readonly string[];
  /** Where it mentions what must be there before. */
  readonly mentions: string;
}

const UNORDERED = 'SET check_function_bodies = off;\nSET client_min_messages = warning;';
const ALWAYS_THERE = 'plpgsql';

/** The statements that make everything again in an empty database, without rows, owners and privileges. */
export function schemaDdl(schema: Schema): string {
  const tables = schema.tables.flatMap((table) => {
    const ddl = tableDdl(table, schema);
    return ddl === undefined ? [] : [{ table, ddl }];
  });
  const owned = new Set(tables.flatMap(({ ddl }) => ddl.sequences));
  const pieces: readonly Piece[] = [
    ...schema.types.map((type) => piece(qualifiedName(type.schema, type.name), typeDdl(type))),
    ...schema.sequences
      .filter((sequence) => sequence.ownedBy === null || owned.has(createSequence(sequence)))
      .map((sequence) => piece(qualifiedName(sequence.schema, sequence.name), [createSequence(sequence)])),
    ...schema.functions.map((routine) =>
      piece(
        qualifiedName(routine.schema, routine.name),
        functionDdl(routine),
        // Bodies are not read when functions are made, except those that are parsed then.
        `${routine.arguments} ${routine.returns} ${/^BEGIN ATOMIC$|^RETURN /m.test(routine.definition ?? '') ? routine.definition : ''}`,
      ),
    ),
    ...tables.map(({ table, ddl }) => piece(qualifiedName(table.schema, table.name), [ddl.create])),
  ];
  const all = (part: 'indexes' | 'foreignKeys' | 'attach' | 'rest') => tables.flatMap(({ ddl }) => ddl[part]);
  const groups = [
    ...schema.schemas.filter(({ name }) => name !== 'public').map(({ name }) => [`CREATE SCHEMA ${quoteIdentifier(name)};`]),
    ...schema.extensions.filter(({ name }) => name !== ALWAYS_THERE).map(extension),
    ...inOrder(pieces).map(({ statements }) => statements),
    all('indexes'),
    all('foreignKeys'),
    all('attach'),
    all('rest'),
  ];
  const text = groups.filter((statements) => statements.length > 0).map((statements) => statements.join('\n'));
  return `${[UNORDERED, ...text].join('\n\n')}\n`;
}

function piece(name: string, statements: readonly string[], mentions = statements.join('\n')): Piece {
  return { name, statements, mentions };
}

function extension({ name, schema }: Schema['extensions'][number]): readonly string[] {
  return [`CREATE EXTENSION IF NOT EXISTS ${quoteIdentifier(name)} SCHEMA ${quoteIdentifier(schema)};`];
}

/** Each after those that it mentions. Of those that mention each other, the order stays. */
function inOrder(pieces: readonly Piece[]): readonly Piece[] {
  const byName = new Map<string, Piece[]>();
  for (const one of pieces) byName.set(one.name, [...(byName.get(one.name) ?? []), one]);
  const done = new Set<Piece>();
  const visit = (one: Piece) => {
    if (done.has(one)) return;
    done.add(one);
    for (const name of mentioned(one.mentions)) for (const other of byName.get(name) ?? []) visit(other);
    ordered.push(one);
  };
  const ordered: Piece[] = [];
  for (const one of pieces) visit(one);
  return ordered;
}

/** One name, or two with a point between them. */
const NAMES = /(?:"(?:[^"]|"")+"|[\p{L}_][\p{L}\p{N}_$]*)(\.(?:"(?:[^"]|"")+"|[\p{L}_][\p{L}\p{N}_$]*))?/gu;

function mentioned(text: string): ReadonlySet<string> {
  return new Set([...text.matchAll(NAMES)].flatMap(([names, second]) => (second === undefined ? [] : [names])));
}
