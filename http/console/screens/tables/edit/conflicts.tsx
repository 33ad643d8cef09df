import { formatCount } from '../../../format.ts';
import { Button } from '../../../parts/button.tsx';
import { Section } from '../../../parts/layout/section.tsx';
import type { OpenTable } from '../browse/open-table.ts';
import type { ValueText } from '../sql/parameterized-sql.ts';
import { isWritable, type TableColumn, valueTextOf } from '../sql/table-column.ts';
import { overwrite, type StagedRow, stageInsert, unstageRow } from './staged-changes.ts';

const SHOWN_MAX = 20;

/** Rows that are not what they were: what was read, what is there now, and what was to be written. */
export function Conflicts({ open, conflicts }: { readonly open: OpenTable; readonly conflicts: readonly StagedRow[] }) {
  const rest = conflicts.length - SHOWN_MAX;
  return (
    <>
      <p>
        Nothing was saved, because {conflicts.length === 1 ? 'this row was' : 'these rows were'} changed after you had read{' '}
        {conflicts.length === 1 ? 'it' : 'them'}. Decide what is to stay, then save again.
      </p>
      {conflicts.slice(0, SHOWN_MAX).map((row) => (
        <Conflict key={row.id} open={open} row={row} />
      ))}
      {rest > 0 && <p class="muted">{formatCount(rest)} more follow when these are decided.</p>}
    </>
  );
}

function Conflict({ open, row }: { readonly open: OpenTable; readonly row: StagedRow }) {
  const current = row.conflict?.current;
  const keys = new Set(open.identity.kind === 'key' ? open.identity.columns : []);
  const title = open.columns
    .flatMap((column, place) => (keys.has(column.name) ? [`${column.name} ${textAt(column, row.base, place) ?? ''}`] : []))
    .join(', ');
  const takeTheirs = () => {
    open.replaceRow(row.id, current);
    open.staged.value = unstageRow(open.staged.peek(), row.id);
  };
  const keepMine = () => {
    open.replaceRow(row.id, current);
    open.staged.value = overwrite(open.staged.peek(), row);
  };
  const insertAgain = () => {
    open.replaceRow(row.id, undefined);
    open.staged.value = stageInsert(unstageRow(open.staged.peek(), row.id), valuesOf(open.columns, row));
  };
  const actions =
    current !== undefined ? (
      <>
        <Button onClick={takeTheirs}>Take theirs</Button>
        <Button onClick={keepMine}>{row.isDeleted ? 'Delete it all the same' : 'Overwrite with mine'}</Button>
      </>
    ) : (
      <>
        <Button onClick={takeTheirs}>{row.isDeleted ? 'Good' : 'Give my change up'}</Button>
        {!row.isDeleted && <Button onClick={insertAgain}>Insert it as a new row</Button>}
      </>
    );
  return (
    <Section title={title} actions={actions}>
      {current === undefined ? (
        <p>Somebody has deleted this row, or changed its key.</p>
      ) : (
        <Comparison open={open} row={row} current={current} />
      )}
    </Section>
  );
}

interface ComparisonProps {
  readonly open: OpenTable;
  readonly row: StagedRow;
  readonly current: readonly string[];
}

/** Only the columns that somebody has changed. */
function Comparison({ open, row, current }: ComparisonProps) {
  const places = open.columns.map((_, place) => place).filter((place) => row.changes.has(place) || current[place] !== row.base[place]);
  return (
    <div class="tables-comparison">
      <table class="table">
        <thead>
          <tr>
            <th scope="col">Column</th>
            <th scope="col">You have read</th>
            <th scope="col">Now in the database</th>
            <th scope="col">Yours</th>
          </tr>
        </thead>
        <tbody>
          {places.map((place) => {
            const column = open.columns[place];
            if (column === undefined) return null;
            return (
              <tr key={column.name}>
                <th scope="row">{column.name}</th>
                <td data-title="You have read">
                  <Value text={textAt(column, row.base, place)} />
                </td>
                <td data-title="Now in the database" class={current[place] === row.base[place] ? '' : 'changed'}>
                  <Value text={textAt(column, current, place)} />
                </td>
                <td data-title="Yours">
                  {row.isDeleted ? (
                    <span class="muted">deleted</span>
                  ) : row.changes.has(place) ? (
                    <Value text={row.changes.get(place) ?? null} />
                  ) : (
                    <span class="muted">not changed</span>
                  )}
                </td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </div>
  );
}

function Value({ text }: { readonly text: ValueText }) {
  return text === null ? <span class="muted">NULL</span> : <code>{text}</code>;
}

function textAt(column: TableColumn, cells: readonly string[], place: number): ValueText {
  return valueTextOf(column, cells[place] ?? 'null');
}

/** The row as it was read, with the own changes in it. */
function valuesOf(columns: readonly TableColumn[], row: StagedRow): ReadonlyMap<number, ValueText> {
  const values = columns.flatMap((column, place) => {
    if (!isWritable(column)) return [];
    const changed = row.changes.get(place);
    return [[place, changed === undefined ? textAt(column, row.base, place) : changed] as const];
  });
  return new Map(values);
}
