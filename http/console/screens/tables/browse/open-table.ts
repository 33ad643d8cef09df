import { type ReadonlySignal, signal } from '@preact/signals';
import { type ApiError, asApiError, isAbort } from '../../../api/api-error.ts';
import type { SchemaTable } from '../../../api/database-schema.ts';
import { me } from '../../../session/me.ts';
import type { SavedRows } from '../edit/save.ts';
import { NOTHING, type ReadRow, type Staged, stageInsert } from '../edit/staged-changes.ts';
import type { EditableTable } from '../edit/staged-statements.ts';
import { type Browse, type Cursor, cursorColumns, pageSql, type Sort } from '../sql/browse-sql.ts';
import type { Filter } from '../sql/filter-conditions.ts';
import { type RowIdentity, rowIdentityOf } from '../sql/row-identity.ts';
import { type TableColumn, tableColumn, valueTextOf } from '../sql/table-column.ts';
import { readPage } from './read-page.ts';

export const PAGE_ROWS = 200;

export interface LoadState {
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
function readOnlyReason(table: SchemaTable, identity: RowIdentity, scope: 'admin' | 'write' | 'read' | undefined): string | undefined {
  if (table.kind === 'view' || table.kind === 'materialized view') return `Read-only: this is a ${table.kind}.`;
  if (table.kind === 'foreign table') return 'Read-only: the rows of a foreign table are on another server.';
  if (scope === 'read') return 'Read-only: the scope of this key is read.';
  if (identity.kind !== 'key')
    return 'Read-only: the table has no primary key and no other unique key without NULL, so a single row cannot be named.';
  return undefined;
}
