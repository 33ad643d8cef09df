import { useLoad } from '../../api/use-load.ts';
import { formatCount, formatDuration, formatTime } from '../../format.ts';
import { Button } from '../../parts/button.tsx';
import { CodeBlock } from '../../parts/copying/code-block.tsx';
import { Dialog } from '../../parts/dialog.tsx';
import { Loaded } from '../../parts/loaded.tsx';
import { Notice } from '../../parts/notice.tsx';
import { goTo } from '../../shell/route.ts';
import { begin } from './draft.ts';
import { type Migration, type MigrationSql, SHOWN_MAX_CHARACTERS, sqlOf } from './migration-calls.ts';
import { outcome } from './run-migration.ts';

/** One migration of the history, with its SQL. */
export function MigrationDialog({ of: migration, onClose }: { readonly of: Migration; readonly onClose: () => void }) {
  const { name, status, appliedAt, durationMs, statementCount, statementsApplied, checksum } = migration;
  const load = useLoad(async (signal) => (await sqlOf(name, signal)) ?? null, [name]);
  return (
    <Dialog title={name} class="wide" onClose={onClose}>
      {status === 'failed' && (
        <Notice tone="bad">
          <p>
            {formatCount(statementsApplied)} of {formatCount(statementCount)} statements went through, and stay. It is tried again when a
            migration of this name is applied.
          </p>
        </Notice>
      )}
      <p class="muted">
        {formatTime(appliedAt)} · {formatCount(statementCount)} {statementCount === 1 ? 'statement' : 'statements'} ·{' '}
        {formatDuration(durationMs)}
        {' · '}
        <code>{checksum}</code>
      </p>
      <Loaded of={load}>{(found) => (found === null ? <p>The history has its SQL no more.</p> : <Sql of={found} />)}</Loaded>
      {status === 'failed' && load.data && (
        <footer>
          <Button
            kind="primary"
            onClick={() => {
              begin(draftOf(migration, load.data));
              outcome.value = undefined;
              goTo('migrations', 'new');
            }}
          >
            Work on it again
          </Button>
        </footer>
      )}
    </Dialog>
  );
}

/** Only a migration without a transaction can leave a failure in the history. */
function draftOf({ name }: Migration, found: MigrationSql | null | undefined) {
  const rollbackSql = found?.rollbackSql ?? '';
  return { name, sql: found?.sql ?? '', rollbackSql, hasRollback: rollbackSql !== '', isTransaction: false };
}

function Sql({ of: { sql, rollbackSql, characters } }: { readonly of: MigrationSql }) {
  return (
    <>
      <div class="migration-sql">
        <CodeBlock text={sql} label="SQL" />
        {rollbackSql !== null && <CodeBlock text={rollbackSql} label="What undoes it" />}
      </div>
      {characters > SHOWN_MAX_CHARACTERS && (
        <p class="muted">
          {formatCount(SHOWN_MAX_CHARACTERS)} of {formatCount(characters)} characters are shown.
        </p>
      )}
    </>
  );
}
