import type { Schema } from '../../../api/database-schema.ts';
import { formatCount } from '../../../format.ts';
import type { Range } from '../../../parts/grid/geometry.ts';
import type { CellCommand } from '../../../parts/grid/grid-props.ts';
import { referencesOf } from './foreign-keys.ts';
import type { OpenTable } from './open-table.ts';
import type { TableSource } from './table-source.ts';

/** A cell of the grid, which is one of a selection in these rows. */
export interface CellPlace {
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
