import { useState } from 'preact/hooks';
import type { ApiError } from '../../../api/api-error.ts';
import { Button } from '../../../parts/button.tsx';
import { CodeBlock } from '../../../parts/copying/code-block.tsx';
import { Dialog } from '../../../parts/dialog.tsx';
import { Notice, ProblemNotice } from '../../../parts/notice.tsx';
import { me } from '../../../session/me.ts';
import { say } from '../../../shell/toasts.tsx';
import type { OpenTable } from '../browse/open-table.ts';
import type { Sql } from '../sql/parameterized-sql.ts';
import { Conflicts } from './conflicts.tsx';
import { save } from './save.ts';
import { conflictsIn, countChanges, type Staged, summaryOf, withConflicts } from './staged-changes.ts';
import { changesOf, type EditableTable } from './staged-statements.ts';

interface Failure {
  readonly error: ApiError;
  readonly statement: Sql | undefined;
}

const STATEMENTS_MAX = 1_000;
/** So much of the text is shown; all of it runs. */
const SHOWN_STATEMENTS = 200;

/** Shows what is going to run, and runs it. */
export function ReviewDialog({ open, onClose }: { readonly open: OpenTable; readonly onClose: () => void }) {
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
