import { computed, type ReadonlySignal, signal } from '@preact/signals';
import { ApiError, asApiError, callForResponse, isAbort, isProblem, linesOf } from '../../api/client.ts';
import type { ForeignKey, Schema, SchemaTable } from '../../api/database-schema.ts';
import { elementsOf, membersOf } from '../../api/raw-json.ts';
import { formatCount } from '../../format.ts';
import type { Range } from '../../grid/geometry.ts';
import type { CellCommand } from '../../grid/grid-state.ts';
import type { GridColumn, GridSource, RowState } from '../../grid/source.ts';
import { me, type Scope } from '../../session/session.ts';
import { goTo } from '../../shell/route.ts';
import {
  type Browse,
  type Cursor,
  cursorColumns,
  type Filter,
  isWritable,
  pageSql,
  type RowIdentity,
  rowIdentityOf,
  type Sort,
  type Statement,
  shownJson,
  type TableColumn,
  tableColumn,
  tableName,
  type ValueText,
  valueTextOf,
} from './sql.ts';
import {
  type EditableTable,
  isNothing,
  NOTHING,
  type ReadRow,
  type SavedRows,
  type Staged,
  type StagedInsert,
  stageCell,
  stageDelete,
  stageInsert,
  stageInsertValue,
  unstageInsert,
  unstageRow,
} from './staged-changes.ts';

const PAGE_ROWS = 200;

interface LoadState {
  readonly isLoading: boolean;
  /** There are no more rows. */
  readonly isComplete: boolean;
  readonly error: ApiError | undefined;
}

const BEGINNING: LoadState = { isLoading: false, isComplete: false, error: undefined };

/** A table that somebody looks at: which rows, those that were read, and what is to become of them. */
export class OpenTable {
  readonly table: SchemaTable;
  readonly columns: readonly TableColumn[];
  readonly identity: RowIdentity;
  readonly readOnlyReason: string | undefined;
  readonly sort = signal<Sort | undefined>(undefined);
  readonly filters = signal<readonly Filter[]>([]);
  readonly load = signal(BEGINNING);
  readonly staged = signal<Staged>(NOTHING);
  readonly #keyPlaces: readonly number[];
  readonly #version = signal(0);
  readonly #generation = signal(0);
  #rows: ReadRow[] = [];
  #cursor: Cursor | undefined;
  /** The next page takes the place of the rows that are shown until then. */
  #isFresh = true;
  #abandoned = new AbortController();

  constructor(table: SchemaTable) {
    this.table = table;
    this.columns = table.columns.map(tableColumn);
    this.identity = rowIdentityOf(table);
    const names = this.identity.kind === 'key' ? this.identity.columns : [];
    this.#keyPlaces = names.map((name) => this.columns.findIndex((column) => column.name === name));
    this.readOnlyReason = readOnlyReason(table, this.identity, me.peek()?.key.scope);
  }

  /** Changes when other rows are shown, or new ones come first: they are seen from their beginning. */
  get generation(): ReadonlySignal<number> {
    return this.#generation;
  }

  /** Changes with the rows. */
  get version(): ReadonlySignal<number> {
    return this.#version;
  }

  get rows(): readonly ReadRow[] {
    return this.#rows;
  }

  get browse(): Browse {
    return { table: this.table, columns: this.columns, identity: this.identity, sort: this.sort.value, filters: this.filters.value };
  }

  get editable(): EditableTable | undefined {
    if (this.readOnlyReason !== undefined || this.identity.kind !== 'key') return undefined;
    return { table: this.table, columns: this.columns, key: this.#keyPlaces };
  }

  /** Reads other rows, from their beginning. */
  show(next: { readonly sort?: Sort | undefined; readonly filters?: readonly Filter[] }): Promise<void> {
    if ('sort' in next) this.sort.value = next.sort;
    if (next.filters !== undefined) this.filters.value = next.filters;
    return this.reload();
  }

  insertRow(): void {
    this.staged.value = stageInsert(this.staged.peek());
    this.#generation.value += 1;
  }

  reload(): Promise<void> {
    this.#abandoned.abort();
    this.#abandoned = new AbortController();
    this.#isFresh = true;
    this.#cursor = undefined;
    this.load.value = BEGINNING;
    return this.loadMore();
  }

  async loadMore(): Promise<void> {
    const { isLoading, isComplete } = this.load.peek();
    if (isLoading || isComplete) return;
    const { signal } = this.#abandoned;
    this.load.value = { isLoading: true, isComplete: false, error: undefined };
    try {
      const page = await readPage(pageSql(this.browse, this.#cursor, PAGE_ROWS).toStatement(), signal);
      if (signal.aborted) return;
      this.#append(page.rows);
      this.load.value = { isLoading: false, isComplete: page.isWhole && page.rows.length < PAGE_ROWS, error: undefined };
    } catch (error) {
      if (signal.aborted || isAbort(error)) return;
      // The rows that are shown are not those that were asked for.
      if (this.#isFresh) this.#replaceRows([]);
      this.load.value = { isLoading: false, isComplete: false, error: asApiError(error) };
    }
  }

  /** Shows rows as they are after they were saved; nothing is staged any more. */
  applySaved({ updated, inserted }: SavedRows): void {
    const staged = this.staged.peek();
    const kept = this.#rows.flatMap((row) => {
      if (staged.rows.get(row.id)?.isDeleted) return [];
      if (!updated.has(row.id)) return [row];
      const cells = updated.get(row.id);
      return cells === undefined ? [] : [this.rowOf(cells)];
    });
    this.#rows = [...inserted.map((cells) => this.rowOf(cells)), ...kept];
    this.staged.value = NOTHING;
    this.#version.value += 1;
  }

  /** Shows a row as somebody else has left it. @param cells undefined: it is gone */
  replaceRow(id: string, cells: readonly string[] | undefined): void {
    this.#rows = this.#rows.flatMap((row) => {
      if (row.id !== id) return [row];
      return cells === undefined ? [] : [this.rowOf(cells)];
    });
    this.#version.value += 1;
  }

  rowOf(cells: readonly string[]): ReadRow {
    return { id: this.#keyPlaces.map((place) => cells[place]).join(), cells };
  }

  #append(rows: readonly (readonly string[])[]): void {
    if (this.#isFresh) this.#replaceRows([]);
    this.#isFresh = false;
    this.#rows.push(...rows.map((cells) => this.rowOf(cells)));
    this.#cursor = this.#cursorAfter(rows);
    this.#version.value += 1;
  }

  #replaceRows(rows: ReadRow[]): void {
    this.#rows = rows;
    this.#generation.value += 1;
    this.#version.value += 1;
  }

  #cursorAfter(rows: readonly (readonly string[])[]): Cursor | undefined {
    const places = cursorColumns(this.browse);
    if (places === undefined) return { offset: this.#rows.length };
    const last = rows.at(-1);
    if (last === undefined) return this.#cursor;
    return { after: places.map((place) => this.#textAt(last, place)) };
  }

  #textAt(cells: readonly string[], place: number) {
    const cell = cells[place] ?? 'null';
    const column = this.columns[place];
    // Behind the columns comes the ctid.
    return column === undefined ? JSON.parse(cell) : valueTextOf(column, cell);
  }
}

/** Why rows cannot be changed; undefined: they can. */
function readOnlyReason(table: SchemaTable, identity: RowIdentity, scope: Scope | undefined): string | undefined {
  if (table.kind === 'view' || table.kind === 'materialized view') return `Read-only: this is a ${table.kind}.`;
  if (table.kind === 'foreign table') return 'Read-only: the rows of a foreign table are on another server.';
  if (scope === 'read') return 'Read-only: the scope of this key is read.';
  if (identity.kind !== 'key')
    return table.hasChildren && table.kind === 'table'
      ? 'Read-only: rows of other tables, which inherit from this one, are among its rows, so a single row cannot be named.'
      : 'Read-only: no key tells the rows apart, so a single row cannot be named. A primary key does, or a unique one without NULL, unless it is deferrable or one of its collations is nondeterministic.';
  return undefined;
}

/** What stands in a place of the grid: a new row, or one that was read. */
type Place = { readonly insert: StagedInsert } | { readonly row: ReadRow } | undefined;

/** A table's rows with what is staged on top of them. New rows come first: behind the last one more may be read. */
export class TableSource implements GridSource {
  readonly columns: readonly GridColumn[];
  readonly version: ReadonlySignal<number>;
  readonly #open: OpenTable;

  constructor(open: OpenTable) {
    this.#open = open;
    const keys = new Set(open.identity.kind === 'key' ? open.identity.columns : []);
    this.columns = open.columns.map(({ name, type }) => ({ name, type, isKey: keys.has(name) }));
    let version = 0;
    this.version = computed(() => {
      const changed = [open.version.value, open.staged.value];
      version += changed.length;
      return version;
    });
  }

  get rowCount(): number {
    return this.#open.staged.peek().inserts.length + this.#open.rows.length;
  }

  valueAt(row: number, column: number): string {
    const text = this.textAt(row, column);
    const { columns } = this.#open;
    const definition = columns[column];
    return text === undefined || definition === undefined ? 'null' : shownJson(definition, text);
  }

  rowState(row: number): RowState | undefined {
    const place = this.#placeOf(row);
    if (place === undefined) return undefined;
    if ('insert' in place) return 'new';
    const staged = this.#open.staged.peek().rows.get(place.row.id);
    if (staged === undefined) return undefined;
    if (staged.conflict !== undefined) return 'conflict';
    return staged.isDeleted ? 'deleted' : 'changed';
  }

  isChanged(row: number, column: number): boolean {
    const place = this.#placeOf(row);
    if (place === undefined) return false;
    if ('insert' in place) return place.insert.values.has(column);
    return this.#open.staged.peek().rows.get(place.row.id)?.changes.has(column) ?? false;
  }

  /** Why a cell has no value yet: of a new row, where a default will stand. */
  placeholderAt(row: number, column: number): string | undefined {
    const place = this.#placeOf(row);
    if (place === undefined || !('insert' in place) || place.insert.values.has(column)) return undefined;
    const { default: given, generated, identity } = this.#open.columns[column] ?? {};
    return given != null || generated != null || identity != null ? 'default' : undefined;
  }

  canEdit(row: number, column: number): boolean {
    const [place, definition] = [this.#placeOf(row), this.#open.columns[column]];
    if (place === undefined || definition === undefined || this.#open.editable === undefined || !isWritable(definition)) return false;
    return 'insert' in place || !this.#open.staged.peek().rows.get(place.row.id)?.isDeleted;
  }

  edit(row: number, column: number, text: ValueText): void {
    const [place, definition] = [this.#placeOf(row), this.#open.columns[column]];
    if (place === undefined || definition === undefined) return;
    const { staged } = this.#open;
    if ('insert' in place) staged.value = stageInsertValue(staged.peek(), place.insert.id, column, text);
    else staged.value = stageCell(staged.peek(), place.row, column, text, text === this.#readText(place.row, column));
  }

  /** New rows are forgotten. */
  delete(rows: Range): void {
    this.#change(rows, (staged, place) =>
      'insert' in place ? unstageInsert(staged, place.insert.id) : stageDelete(staged, place.row, true),
    );
  }

  /** Forgets what was staged for rows. */
  restore(rows: Range): void {
    this.#change(rows, (staged, place) => ('insert' in place ? staged : unstageRow(staged, place.row.id)));
  }

  useDefault(row: number, column: number): void {
    const place = this.#placeOf(row);
    if (place === undefined || !('insert' in place)) return;
    this.#open.staged.value = stageInsertValue(this.#open.staged.peek(), place.insert.id, column, undefined);
  }

  /** The value as it is shown; undefined: a new row has none there. */
  textAt(row: number, column: number): ValueText | undefined {
    const place = this.#placeOf(row);
    if (place === undefined) return undefined;
    if ('insert' in place) return place.insert.values.get(column);
    const changed = this.#open.staged.peek().rows.get(place.row.id)?.changes.get(column);
    return changed === undefined ? this.#readText(place.row, column) : changed;
  }

  #change({ from, to }: Range, change: (staged: Staged, place: NonNullable<Place>) => Staged): void {
    const places = Array.from({ length: to - from }, (_, index) => this.#placeOf(from + index));
    const { staged } = this.#open;
    staged.value = places.reduce((all, place) => (place === undefined ? all : change(all, place)), staged.peek());
  }

  #readText(row: ReadRow, column: number): ValueText {
    const definition = this.#open.columns[column];
    const cells = this.#open.staged.peek().rows.get(row.id)?.base ?? row.cells;
    return definition === undefined ? null : valueTextOf(definition, cells[column] ?? 'null');
  }

  #placeOf(row: number): Place {
    const { inserts } = this.#open.staged.peek();
    const insert = inserts[row];
    if (insert !== undefined) return { insert };
    const read = this.#open.rows[row - inserts.length];
    return read === undefined ? undefined : { row: read };
  }
}

/** Rows may have megabytes each: a page then has fewer of them. */
const PAGE_MAX_CHARACTERS = 8_000_000;

interface Page {
  /** The cells of each row as JSON. */
  readonly rows: readonly (readonly string[])[];
  /** All that was asked for has been read. */
  readonly isWhole: boolean;
}

/** @throws ApiError */
export async function readPage({ sql, params }: Statement, signal: AbortSignal): Promise<Page> {
  const response = await callForResponse('POST', 'api/query', {
    body: { sql, params, rowMode: 'array', readOnly: true },
    accept: 'application/x-ndjson',
    isSafe: true,
    signal,
  });
  const rows: (readonly string[])[] = [];
  let characters = 0;
  for await (const lines of linesOf(response)) {
    for (const line of lines) {
      const members = membersOf(line);
      const [at] = members.get('row') ?? [];
      if (at !== undefined) rows.push(elementsOf(line, at));
      if (members.has('complete')) return { rows, isWhole: true };
      if (members.has('error')) throw errorIn(line);
      characters += line.length;
    }
    if (characters > PAGE_MAX_CHARACTERS && rows.length > 0) return { rows, isWhole: false };
  }
  throw new ApiError({
    status: 0,
    title: 'No connection',
    detail: 'the reply broke off before its end',
    code: 'unreachable',
    retryable: true,
  });
}

function errorIn(line: string): Error {
  const { error } = JSON.parse(line) as { readonly error: unknown };
  return isProblem(error) ? new ApiError(error) : new Error('the rows could not be read to their end');
}

/** Tables that were looked at keep their filters, their place, and what is staged; of those with nothing staged the last ones do. */
const KEPT_MAX = 8;
const tables = new Map<string, OpenTable>();

/** The table as it was left, unless its columns have changed since. */
export function openTable(table: SchemaTable): OpenTable {
  const name = tableName(table);
  const known = tables.get(name);
  if (known !== undefined && (hasSameShape(known.table, table) || !isNothing(known.staged.peek()))) {
    tables.delete(name);
    tables.set(name, known);
    return known;
  }
  const opened = new OpenTable(table);
  tables.set(name, opened);
  forgetOldest();
  return opened;
}

/** Opens a table with these rows of it. */
function showRows(table: SchemaTable, filters: readonly Filter[]): void {
  void openTable(table).show({ filters, sort: undefined });
}

/** How many changes wait in a table; a signal is read. */
export function stagedIn(name: string): number {
  const staged = tables.get(name)?.staged.value;
  return staged === undefined ? 0 : staged.rows.size + staged.inserts.length;
}

function hasSameShape(one: SchemaTable, other: SchemaTable): boolean {
  const shape = ({ columns, rowKey, kind, hasChildren }: SchemaTable) => JSON.stringify([columns, rowKey, kind, hasChildren]);
  return shape(one) === shape(other);
}

function forgetOldest(): void {
  const idle = [...tables].filter(([, { staged }]) => isNothing(staged.peek()));
  for (const [name] of idle.slice(0, Math.max(0, idle.length - KEPT_MAX))) tables.delete(name);
}

addEventListener('beforeunload', (event) => {
  // Whoever signs out has left the screen, and wants nothing to stay.
  const isSignedOut = location.hash === '';
  if (!isSignedOut && [...tables.values()].some(({ staged }) => !isNothing(staged.peek()))) event.preventDefault();
});

interface Reference {
  readonly title: string;
  readonly run: () => void;
}

/** @returns the value of a column in the row; undefined: there is none yet */
type TextIn = (column: string) => ValueText | undefined;

/** Where the foreign keys of a row's column lead, and the rows of other tables that refer to the row. */
function referencesOf({ tables }: Schema, table: SchemaTable, column: string, textIn: TextIn): readonly Reference[] {
  const outwards = table.foreignKeys.flatMap((key) => {
    const target = tables.find(({ schema, name }) => schema === key.referencedSchema && name === key.referencedTable);
    if (target === undefined || !key.columns.includes(column)) return [];
    return link(`Go to the row of ${shortName(table, target)}`, target, filtersOf(key, key.referencedColumns, key.columns, textIn));
  });
  const inwards = tables.flatMap((other) =>
    other.foreignKeys
      .filter((key) => refersTo(key, table))
      .flatMap((key) => link(titleOf(table, other, key), other, filtersOf(key, key.columns, key.referencedColumns, textIn))),
  );
  return [...outwards, ...inwards];
}

function titleOf(table: SchemaTable, other: SchemaTable, { columns }: ForeignKey): string {
  const isOnly = other.foreignKeys.filter((key) => refersTo(key, table)).length === 1;
  return `Rows of ${shortName(table, other)} that refer to this${isOnly ? '' : ` by ${columns.join(', ')}`}`;
}

function refersTo({ referencedSchema, referencedTable }: ForeignKey, { schema, name }: SchemaTable): boolean {
  return referencedSchema === schema && referencedTable === name;
}

/** A reference with a NULL in it leads nowhere. A period is within those of the rows referred to, of which each has a part of it. */
function filtersOf(key: ForeignKey, columns: readonly string[], sources: readonly string[], textIn: TextIn): readonly Filter[] | undefined {
  const texts = sources.map(textIn);
  if (texts.some((text) => text === undefined || text === null)) return undefined;
  const operatorAt = (index: number) => (key.isTemporal && index === columns.length - 1 ? 'overlaps' : 'equal');
  return columns.map((column, index) => ({ column, operator: operatorAt(index), text: texts[index] ?? '' }));
}

function link(title: string, target: SchemaTable, filters: readonly Filter[] | undefined): readonly Reference[] {
  if (filters === undefined) return [];
  const run = () => {
    showRows(target, filters);
    goTo('tables', tableName(target));
  };
  return [{ title, run }];
}

function shortName(from: SchemaTable, { schema, name }: SchemaTable): string {
  return schema === from.schema ? name : `${schema}.${name}`;
}

/** A cell of the grid, which is one of a selection in these rows. */
interface CellPlace {
  readonly row: number;
  readonly column: number;
  readonly rows: Range;
}

/** What the menu of a cell has besides copying: edits of rows, filters, references. */
export function cellCommands(open: OpenTable, source: TableSource, schema: Schema, place: CellPlace): readonly CellCommand[] {
  const textIn = (name: string) => {
    const column = open.columns.findIndex((one) => one.name === name);
    return source.textAt(place.row, column);
  };
  return [
    ...(open.editable === undefined ? [] : editCommands(source, place)),
    ...filterCommands(open, source, place),
    ...referencesOf(schema, open.table, open.columns[place.column]?.name ?? '', textIn),
  ];
}

function editCommands(source: TableSource, { row, column, rows }: CellPlace): readonly CellCommand[] {
  const states = new Set(Array.from({ length: rows.to - rows.from }, (_, index) => source.rowState(rows.from + index)));
  const count = rows.to - rows.from;
  const what = count === 1 ? 'row' : `${formatCount(count)} rows`;
  const commands: CellCommand[] = [];
  if (source.rowState(row) === 'new' && source.canEdit(row, column)) {
    if (source.isChanged(row, column)) commands.push({ title: 'Use the default', run: () => source.useDefault(row, column) });
    else commands.push({ title: 'NULL in place of the default', run: () => source.edit(row, column, null) });
  }
  if (states.has('changed') || states.has('deleted') || states.has('conflict'))
    commands.push({ title: `Undo the changes of ${count === 1 ? 'this row' : what}`, run: () => source.restore(rows) });
  if (states.size > 1 || !states.has('deleted'))
    commands.push({
      title: states.size === 1 && states.has('new') ? `Discard new ${what}` : `Delete ${what}`,
      run: () => source.delete(rows),
    });
  return commands;
}

function filterCommands(open: OpenTable, source: TableSource, { row, column }: CellPlace): readonly CellCommand[] {
  const text = source.textAt(row, column);
  const name = open.columns[column]?.name;
  if (name === undefined || text === undefined) return [];
  const filter = { column: name, operator: text === null ? 'null' : 'equal', text: text ?? '' } as const;
  const title = 'Only rows with this value';
  return [{ title, run: () => void open.show({ filters: [...open.filters.peek(), filter] }) }];
}
