import { computed, type ReadonlySignal } from '@preact/signals';
import type { Range } from '../../../parts/grid/geometry.ts';
import type { GridColumn, GridSource, RowState } from '../../../parts/grid/grid-source.ts';
import {
  type ReadRow,
  type Staged,
  type StagedInsert,
  stageCell,
  stageDelete,
  stageInsertValue,
  unstageInsert,
  unstageRow,
} from '../edit/staged-changes.ts';
import type { ValueText } from '../sql/parameterized-sql.ts';
import { isWritable, shownJson, valueTextOf } from '../sql/table-column.ts';
import type { OpenTable } from './open-table.ts';

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
