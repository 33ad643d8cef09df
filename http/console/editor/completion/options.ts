import { USUAL_FUNCTIONS } from '../../../../src/syntax/side-effects.ts';
import type { Routine, Schema, SchemaColumn, SchemaTable } from '../../api/database-schema.ts';
import { quoteIdentifier } from '../../quoting/quote-identifier.ts';
import type { Cursor } from './cursor.ts';
import { NAMELIKE_KEYWORDS, OTHER_KEYWORDS, TYPES, USUAL_KEYWORDS } from './keywords-and-types.ts';
import { Ranking } from './match.ts';
import type { NamedTable } from './tables-of-statement.ts';

/** What can stand at the cursor. */
export interface Option {
  readonly label: string;
  /** What it is: a column's type, a function's arguments. */
  readonly detail: string;
  /** As SQL writes it. */
  readonly sql: string;
  /** What follows: a dot and a name, or arguments. */
  readonly goesOn?: 'dot' | 'arguments';
}

/** What needs no schema in front of it. */
const USUAL_SCHEMA = 'public';
const OPTIONS_MAX = 100;
/** Which kind of names comes first, where several answer as well. Fractions order the keywords. */
const WEIGHT = { column: 9, keyword: 8, here: 7, function: 5, builtIn: 4.5, table: 4, schema: 3, type: 3, other: 2 };
const TABLE_WEIGHT = { query: 9, table: 8, schema: 7, function: 4, keyword: 2 };

/** The best of what can stand at the cursor, the best first. */
export function optionsAt(cursor: Cursor, schema: Schema | undefined): Option[] {
  const ranking = new Ranking<Option>(cursor.typed);
  const names = new Names(ranking, cursor, schema);
  if (cursor.path.length > 0) names.addMembers();
  else if (cursor.expectsTable) names.addTables();
  else names.addAll();
  return ranking.best(OPTIONS_MAX);
}

class Names {
  readonly #ranking: Ranking<Option>;
  readonly #cursor: Cursor;
  readonly #schema: Schema | undefined;

  constructor(ranking: Ranking<Option>, cursor: Cursor, schema: Schema | undefined) {
    this.#ranking = ranking;
    this.#cursor = cursor;
    this.#schema = schema;
  }

  /** What stands behind a dot: columns of a table or an alias, tables and functions of a schema. */
  addMembers(): void {
    const { path, tables } = this.#cursor;
    const [first, second] = path.slice(-2);
    if (first === undefined) return;
    if (second !== undefined) {
      this.#addColumns(this.#find(first, second), undefined);
      return;
    }
    const named = tables.find(({ name, alias }) => (alias ?? name) === first) ?? tables.find(({ name }) => name === first);
    const table = named ? this.#tableOf(named) : this.#find(undefined, first);
    if (table !== undefined) this.#addColumns(table, undefined);
    this.#addTablesOf((schema) => schema === first, TABLE_WEIGHT.table, true);
    this.#addRoutines((schema) => schema === first, TABLE_WEIGHT.function);
  }

  addTables(): void {
    const { queries } = this.#cursor;
    this.#ranking.add(queries, TABLE_WEIGHT.query, asIs, (name) => this.#name(name, 'WITH query'));
    this.#addTablesOf(() => true, TABLE_WEIGHT.table, false);
    this.#addSchemas(TABLE_WEIGHT.schema);
    this.#addRoutines((schema) => schema === USUAL_SCHEMA, TABLE_WEIGHT.function);
    if (this.#isTyped) this.#addKeywords(USUAL_KEYWORDS, TABLE_WEIGHT.keyword);
  }

  addAll(): void {
    const { tables } = this.#cursor;
    const here = tables.flatMap((named) => {
      const table = this.#tableOf(named);
      return table === undefined ? [] : [{ named, table }];
    });
    const counts = new Map<string, number>();
    for (const { table } of here) for (const { name } of table.columns) counts.set(name, (counts.get(name) ?? 0) + 1);
    for (const { named, table } of here) this.#addColumns(table, here.length > 1 ? { named, counts } : undefined);
    this.#ranking.add(tables, WEIGHT.here, shortName, (named) => ({
      ...this.#name(shortName(named), named.alias === undefined ? 'table' : named.name),
      goesOn: 'dot',
    }));
    if (!this.#isTyped) return;
    this.#addKeywords(USUAL_KEYWORDS, WEIGHT.keyword);
    this.#addKeywords(OTHER_KEYWORDS, WEIGHT.other);
    this.#addKeywords(NAMELIKE_KEYWORDS, WEIGHT.other);
    this.#addKeywords(TYPES, WEIGHT.type, 'type');
    if (!this.#cursor.isQuoted)
      this.#ranking.add(USUAL_FUNCTIONS, WEIGHT.builtIn, asIs, (name) => ({
        label: name,
        detail: 'function',
        sql: name,
        goesOn: 'arguments',
      }));
    this.#addRoutines((schema) => schema === USUAL_SCHEMA, WEIGHT.function);
    this.#addTablesOf(() => true, WEIGHT.table, false);
    this.#addSchemas(WEIGHT.schema);
    const types = this.#schema?.types ?? [];
    this.#ranking.add(types, WEIGHT.type, nameOf, ({ schema, name, kind }) => this.#qualified(schema, name, kind));
  }

  get #isTyped(): boolean {
    return this.#cursor.typed !== '';
  }

  /** @param several with the tables of the statement where there are more: a column that several have is written with its table */
  #addColumns(
    table: SchemaTable | undefined,
    several: { readonly named: NamedTable; readonly counts: ReadonlyMap<string, number> } | undefined,
  ): void {
    this.#ranking.add(table?.columns ?? [], WEIGHT.column, nameOf, (column) => {
      const option = this.#name(column.name, detailOf(column));
      if (several === undefined) return option;
      const prefix = shortName(several.named);
      const detail = `${option.detail} · ${prefix}`;
      if (several.counts.get(column.name) === 1 || this.#cursor.isQuoted) return { ...option, detail };
      return { label: `${prefix}.${column.name}`, detail: option.detail, sql: `${quoteIdentifier(prefix)}.${option.sql}` };
    });
  }

  #addTablesOf(isAsked: (schema: string) => boolean, weight: number, isShort: boolean): void {
    const tables = this.#schema?.tables ?? [];
    for (const isUsual of [true, false]) {
      const asked = tables.filter(({ schema }) => (schema === USUAL_SCHEMA) === isUsual && isAsked(schema));
      // Those that need no schema come first.
      this.#ranking.add(asked, isUsual ? weight : weight - 0.5, nameOf, ({ schema, name, kind }) =>
        isShort ? this.#name(name, kind) : this.#qualified(schema, name, kind),
      );
    }
  }

  #addRoutines(isAsked: (schema: string) => boolean, weight: number): void {
    const routines = this.#schema?.functions.filter(({ schema, returns }) => isAsked(schema) && returns !== 'trigger') ?? [];
    this.#ranking.add(routines, weight, nameOf, (routine) => ({ ...this.#name(routine.name, signatureOf(routine)), goesOn: 'arguments' }));
  }

  #addSchemas(weight: number): void {
    const schemas = this.#schema?.schemas ?? [];
    this.#ranking.add(schemas, weight, nameOf, ({ name }) => ({ ...this.#name(name, 'schema'), goesOn: 'dot' }));
  }

  #addKeywords(words: readonly string[], weight: number, detail = ''): void {
    if (this.#cursor.isQuoted) return;
    const { typed } = this.#cursor;
    const isUpper = /[A-Z]/.test(typed) && typed === typed.toUpperCase();
    words.forEach((word, index) => {
      const sql = isUpper ? word.toUpperCase() : word;
      this.#ranking.add([word], weight - index / words.length, asIs, () => ({ label: sql, detail, sql }));
    });
  }

  #qualified(schema: string, name: string, detail: string): Option {
    const option = this.#name(name, detail);
    if (schema === USUAL_SCHEMA) return option;
    return { ...option, label: `${schema}.${name}`, sql: `${quoteIdentifier(schema)}.${option.sql}` };
  }

  /** In quotes too where a quote is typed. */
  #name(name: string, detail: string): Option {
    const sql = quoteIdentifier(name);
    return { label: name, detail, sql: this.#cursor.isQuoted && sql === name ? `"${name}"` : sql };
  }

  #tableOf({ schema, name }: NamedTable): SchemaTable | undefined {
    return this.#find(schema, name);
  }

  /** @param schema undefined: the one that needs no schema, else any */
  #find(schema: string | undefined, name: string): SchemaTable | undefined {
    const named = this.#schema?.tables.filter((table) => table.name === name) ?? [];
    if (schema !== undefined) return named.find((table) => table.schema === schema);
    return named.find((table) => table.schema === USUAL_SCHEMA) ?? named[0];
  }
}

const asIs = (name: string): string => name;
const nameOf = ({ name }: { readonly name: string }): string => name;
const shortName = ({ name, alias }: NamedTable): string => alias ?? name;

function detailOf({ type, notNull }: SchemaColumn): string {
  return notNull ? `${type} not null` : type;
}

function signatureOf({ kind, arguments: args, returns }: Routine): string {
  if (kind === 'procedure') return `procedure (${args})`;
  return `(${args})${returns === null ? '' : ` → ${returns}`}`;
}
