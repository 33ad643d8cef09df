import { useEffect, useState } from 'preact/hooks';
import type { ApiError } from '../../api/client.ts';
import { formatCount } from '../../format.ts';
import { Button } from '../../parts/button.tsx';
import { CodeBlock } from '../../parts/copying.tsx';
import { Confirmation, Dialog } from '../../parts/dialog.tsx';
import { Section } from '../../parts/layout.tsx';
import { Notice, ProblemNotice } from '../../parts/notice.tsx';
import { me } from '../../session/session.ts';
import { say } from '../../shell/toasts.tsx';
import type { OpenTable } from './open-table.ts';
import { isWritable, type Sql, type TableColumn, type ValueText, valueTextOf } from './sql.ts';
import {
  changesOf,
  conflictsIn,
  countChanges,
  type EditableTable,
  isNothing,
  NOTHING,
  overwrite,
  type Staged,
  type StagedRow,
  save,
  stageInsert,
  summaryOf,
  unstageRow,
  withConflicts,
} from './staged-changes.ts';

/** What waits to be saved. */
export function StagedBar({ open }: { readonly open: OpenTable }) {
  const [shown, show] = useState<'review' | 'discard'>();
  const staged = open.staged.value;
  const isEmpty = isNothing(staged);
  useEffect(() => {
    if (isEmpty) show(undefined);
  }, [isEmpty]);
  if (isEmpty) return null;
  const conflicts = conflictsIn(staged).length;
  return (
    <div class="tables-staged">
      <span>
        {summaryOf(staged)}, not saved
        {conflicts > 0 && (
          <strong class="bad"> · {conflicts === 1 ? '1 row was' : `${conflicts} rows were`} changed by somebody else</strong>
        )}
      </span>
      <Button kind="quiet" onClick={() => show('discard')}>
        Discard
      </Button>
      <Button kind="primary" onClick={() => show('review')}>
        Review and save
      </Button>
      {shown === 'review' && <ReviewDialog open={open} onClose={() => show(undefined)} />}
      {shown === 'discard' && (
        <Confirmation
          title="Discard the changes?"
          action="Discard"
          isDangerous
          onClose={() => show(undefined)}
          onConfirm={() => {
            open.staged.value = NOTHING;
          }}
        >
          <p>
            {summaryOf(staged)} in {open.table.name}: nothing of it has been saved, and it will be forgotten.
          </p>
        </Confirmation>
      )}
    </div>
  );
}

interface Failure {
  readonly error: ApiError;
  readonly statement: Sql | undefined;
}

const STATEMENTS_MAX = 1_000;
/** So much of the text is shown; all of it runs. */
const SHOWN_STATEMENTS = 200;

/** Shows what is going to run, and runs it. */
function ReviewDialog({ open, onClose }: { readonly open: OpenTable; readonly onClose: () => void }) {
  const [isBusy, setBusy] = useState(false);
  const [failure, setFailure] = useState<Failure>();
  const staged = open.staged.value;
  const table = open.editable;
  if (table === undefined) return null;
  const conflicts = conflictsIn(staged);
  const { deleted } = countChanges(staged);
  const run = async () => {
    setBusy(true);
    setFailure(undefined);
    const result = await save(table, staged, me.peek()?.limits.maxStatements ?? STATEMENTS_MAX);
    setBusy(false);
    if (result.state === 'saved') {
      open.applySaved(result.rows);
      say(`Saved: ${summaryOf(staged)}.`);
    } else if (result.state === 'conflict') open.staged.value = withConflicts(open.staged.peek(), result.current);
    else setFailure({ error: result.error, statement: result.change?.shown });
  };
  return (
    <Dialog title={titleOf(conflicts.length)} class="wide tables" onClose={onClose}>
      {failure !== undefined && <Failed failure={failure} />}
      {conflicts.length > 0 ? <Conflicts open={open} conflicts={conflicts} /> : <Statements table={table} staged={staged} />}
      <footer>
        <Button onClick={onClose}>{conflicts.length > 0 ? 'Decide later' : 'Back'}</Button>
        {conflicts.length === 0 && (
          <Button kind={deleted > 0 ? 'danger' : 'primary'} isBusy={isBusy} onClick={() => void run()}>
            {deleted === 0 ? 'Save' : `Save, and delete ${deleted === 1 ? '1 row' : `${deleted} rows`}`}
          </Button>
        )}
      </footer>
    </Dialog>
  );
}

function titleOf(conflicts: number): string {
  if (conflicts === 0) return 'Review the changes';
  return conflicts === 1 ? 'Somebody changed this row' : 'Somebody changed these rows';
}

function Statements({ table, staged }: { readonly table: EditableTable; readonly staged: Staged }) {
  const changes = changesOf(table, staged);
  const texts = changes.slice(0, SHOWN_STATEMENTS).map(({ shown }) => `${shown};`);
  const rest = changes.length - texts.length;
  return (
    <>
      <p>
        {summaryOf(staged)} in {table.table.name}. All of it is saved in one transaction, or nothing.
        {staged.rows.size > 0 && ' Where somebody has changed one of these rows meanwhile, nothing is saved, and you see what they wrote.'}
      </p>
      <CodeBlock label="SQL" text={texts.join('\n\n') + (rest > 0 ? `\n\n-- and ${rest} more` : '')} />
    </>
  );
}

function Failed({ failure: { error, statement } }: { readonly failure: Failure }) {
  const isUnknown = error.problem.status === 0 && error.problem.code === 'unreachable';
  return (
    <>
      <ProblemNotice error={error} />
      {statement !== undefined && <CodeBlock label="It failed in this statement; nothing is saved." text={`${statement};`} />}
      {isUnknown && (
        <Notice tone="info">
          <p>Save again: what was carried out already is not done twice.</p>
        </Notice>
      )}
    </>
  );
}

const SHOWN_MAX = 20;

/** Rows that are not what they were: what was read, what is there now, and what was to be written. */
function Conflicts({ open, conflicts }: { readonly open: OpenTable; readonly conflicts: readonly StagedRow[] }) {
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
