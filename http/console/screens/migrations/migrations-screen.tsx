import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { ApiError, type Problem } from '../../api/client.ts';
import { useLoad } from '../../api/use-load.ts';
import { Editor, type EditorProps } from '../../editor/editor.tsx';
import type { EditorError } from '../../editor/error-range.ts';
import { formatAgo, formatCount, formatDuration, formatTime } from '../../format.ts';
import { Button } from '../../parts/button.tsx';
import { CodeBlock } from '../../parts/copying.tsx';
import { Confirmation, Dialog } from '../../parts/dialog.tsx';
import { Empty } from '../../parts/empty.tsx';
import { Checkbox, Choice, Field } from '../../parts/fields.tsx';
import { ScreenPage } from '../../parts/layout.tsx';
import { Loaded } from '../../parts/loaded.tsx';
import { Notice, ProblemNotice } from '../../parts/notice.tsx';
import { type Column, Table } from '../../parts/table.tsx';
import { MissingScopeNotice } from '../../session/missing-scope-notice.tsx';
import { isOwner, me, statementTimeoutChoices } from '../../session/session.ts';
import { screenCommands } from '../../shell/palette-commands.ts';
import { goTo } from '../../shell/route.ts';
import { say } from '../../shell/toasts.tsx';
import {
  begin,
  change,
  type Draft,
  draft,
  errorIn,
  excerptOf,
  type FoundDestruction,
  isOf,
  listMigrations,
  type Migration,
  type MigrationRequest,
  type MigrationSql,
  type MigrationWarning,
  type Outcome,
  outcome,
  placeOf,
  readScript,
  requestOf,
  rollBack,
  rollbackText,
  run,
  type Script,
  SHOWN_MAX_CHARACTERS,
  sqlOf,
  sqlText,
} from './migrations.ts';

const LEAD = 'Changes of the schema, each applied once. The history is a table of the database, and part of a dump.';

/** @param rest `new`: one is being written */
export function MigrationsScreen({ rest }: { readonly rest: string }) {
  if (isOwner()) return rest === 'new' ? <NewMigration /> : <History />;
  return (
    <ScreenPage title="Migrations" lead={LEAD}>
      <MissingScopeNotice scopes={['write', 'admin']} what="see or apply migrations" />
    </ScreenPage>
  );
}

function History() {
  const load = useLoad(listMigrations);
  const [opened, setOpened] = useState<Migration>();
  useEffect(() => {
    screenCommands.value = [{ title: 'New migration', group: 'Migrations', icon: 'plus', run: write }];
    return () => {
      screenCommands.value = [];
    };
  }, []);
  const actions = (
    <>
      <Button kind="quiet" icon="reload" label="Load again" isBusy={load.isLoading} onClick={load.reload} />
      <Button kind="primary" icon="plus" onClick={write}>
        New migration
      </Button>
    </>
  );
  return (
    <ScreenPage title="Migrations" lead={LEAD} actions={actions}>
      <Loaded of={load}>
        {(migrations) =>
          migrations.length === 0 ? (
            <Nothing />
          ) : (
            <Table
              label="Migrations"
              columns={COLUMNS}
              rows={migrations}
              keyOf={({ name }) => name}
              onOpen={setOpened}
              current={opened?.name}
            />
          )
        }
      </Loaded>
      {opened !== undefined && (
        <MigrationDialog
          of={opened}
          onClose={() => setOpened(undefined)}
          onRolledBack={() => {
            setOpened(undefined);
            load.reload();
          }}
        />
      )}
    </ScreenPage>
  );
}

function write(): void {
  goTo('migrations', 'new');
}

const COLUMNS: readonly Column<Migration>[] = [
  { title: 'Name', isWide: true, cell: ({ name }) => <code>{name}</code> },
  {
    title: 'Status',
    cell: ({ status, rolledBackAt }) => (
      <span
        class={status === 'failed' ? 'tag bad' : status === 'rolled_back' ? 'tag' : 'tag good'}
        title={rolledBackAt === null ? undefined : formatTime(rolledBackAt)}
      >
        {status.replace('_', ' ')}
      </span>
    ),
  },
  { title: 'Applied', cell: ({ appliedAt }) => <time title={formatAgo(appliedAt)}>{formatTime(appliedAt)}</time> },
  {
    title: 'Statements',
    align: 'right',
    cell: ({ status, statementCount, statementsApplied }) =>
      status === 'failed' ? `${formatCount(statementsApplied)} of ${formatCount(statementCount)}` : formatCount(statementCount),
  },
  { title: 'Duration', align: 'right', cell: ({ durationMs }) => formatDuration(durationMs) },
];

function Nothing() {
  return (
    <Empty icon="steps" title="No migration has been applied">
      <p>What changes the schema is best applied as a migration: tried out first, all or nothing, and written down.</p>
      <Button onClick={write}>Write the first</Button>
    </Empty>
  );
}

/** A migration is written, tried out and applied. */
function NewMigration() {
  const [isAsked, ask] = useState(false);
  const now = draft.value;
  const known = outcome.value;
  const script = readScript(now.sql);
  const isRunning = known?.state === 'running';
  const isReady = now.name.trim() !== '' && now.sql.trim() !== '' && !isRunning;
  const result = useRef<HTMLDivElement>(null);
  useEffect(() => result.current?.scrollIntoView({ block: 'nearest' }), [known]);
  useEffect(() => {
    // What went through was another one.
    if (known?.state === 'done' && !isOf(known, now)) outcome.value = undefined;
  }, [known, now]);
  const tryOut = () => void run(requestOf(draft.peek(), true));
  useEffect(() => {
    screenCommands.value = [
      { title: 'Dry run', group: 'Migration', icon: 'play', run: tryOut },
      { title: 'To the history', group: 'Migration', icon: 'steps', run: () => goTo('migrations') },
    ];
    return () => {
      screenCommands.value = [];
    };
  }, []);
  const actions = <Button onClick={() => goTo('migrations')}>History</Button>;
  return (
    <ScreenPage title="New migration" lead="Try it out, then apply it: once, and written down in the history." actions={actions}>
      <form
        class="form migration-form"
        onSubmit={(event) => {
          event.preventDefault();
          ask(true);
        }}
      >
        <Field label="Name" value={now.name} onInput={(name) => change({ name })} placeholder={`${today()}-orders`} isMono isRequired />
        <SqlField
          label="SQL"
          text={sqlText}
          error={useMemo(() => errorIn('sql', known, now), [known, now.sql])}
          placeholder={EXAMPLE}
          onRun={() => isReady && now.isTransaction && tryOut()}
        />
        <Options now={now} backError={useMemo(() => errorIn('rollbackSql', known, now), [known, now.rollbackSql])} />
        {known?.state !== 'done' && <Destructions of={script} />}
        <div class="actions">
          <Button icon="play" isDisabled={!isReady || !now.isTransaction} isBusy={isRunning && known.request.dryRun} onClick={tryOut}>
            {now.hasRollback ? 'Dry run, there and back' : 'Dry run'}
          </Button>
          <Button kind="primary" type="submit" isDisabled={!isReady} isBusy={isRunning && !known.request.dryRun}>
            Apply …
          </Button>
          {isRunning && (
            <Button icon="stop" onClick={known.cancel}>
              Cancel
            </Button>
          )}
          {!isRunning && now.sql !== '' && (
            <Button kind="quiet" onClick={() => clear()}>
              Clear
            </Button>
          )}
        </div>
      </form>
      <div class="form migration-outcome" aria-live="polite" ref={result}>
        {known !== undefined && <OutcomeNotice of={known} />}
      </div>
      {isAsked && (
        <Apply
          now={now}
          script={script}
          onClose={() => ask(false)}
          onConfirm={() => {
            ask(false);
            void run(requestOf(draft.peek(), false));
          }}
        />
      )}
    </ScreenPage>
  );
}

const EXAMPLE = 'create table customers (name text primary key);\ninsert into customers select distinct customer from orders;';

function today(): string {
  return new Date().toISOString().slice(0, 10);
}

function clear(): void {
  begin();
  outcome.value = undefined;
}

function SqlField({ hint, ...props }: EditorProps & { readonly hint?: string }) {
  return (
    <div class="field">
      <span class="label">{props.label}</span>
      <Editor {...props} />
      {hint !== undefined && <p class="muted">{hint}</p>}
    </div>
  );
}

function Options({ now, backError }: { readonly now: Draft; readonly backError: EditorError | undefined }) {
  return (
    <>
      <div class="migration-options">
        <Checkbox label="With SQL that undoes it" isChecked={now.hasRollback} onChange={(hasRollback) => change({ hasRollback })} />
        <Checkbox label="In one transaction" isChecked={now.isTransaction} onChange={(isTransaction) => change({ isTransaction })} />
        <Choice
          label="Time limit"
          hideLabel
          value={now.timeLimit}
          options={statementTimeoutChoices(TIME_LIMITS_MS)}
          onChange={(timeLimit) => change({ timeLimit })}
        />
      </div>
      {now.hasRollback && (
        <SqlField
          label="SQL that undoes it"
          text={rollbackText}
          error={backError}
          hint="The dry run proves it: forward, back and forward again. The history keeps it."
          placeholder="drop table customers;"
        />
      )}
      {!now.isTransaction && (
        <Notice tone="warning">
          <p>
            Statement by statement, for CREATE INDEX CONCURRENTLY and the like: where one fails, what the earlier ones did stays. There is
            no dry run.
          </p>
        </Notice>
      )}
    </>
  );
}

const TIME_LIMITS_MS = [60_000, 300_000, 1_800_000];

/** Named while they are written, before anything runs. */
function Destructions({ of: script }: { readonly of: Script | undefined }) {
  if (script === undefined)
    return <p class="muted">The text is too long to be looked through here. The dry run names what destroys data.</p>;
  if (script.destructions.length === 0) return null;
  return (
    <Notice tone="warning">
      <DestructionList of={script.destructions} />
    </Notice>
  );
}

function DestructionList({ of: destructions }: { readonly of: readonly FoundDestruction[] }) {
  return (
    <ul class="by-line">
      {destructions.map(({ line, message }) => (
        <li key={`${line} ${message}`}>
          <span class="muted number">line {line}</span>
          <span>{message}</span>
        </li>
      ))}
    </ul>
  );
}

interface ApplyProps {
  readonly now: Draft;
  readonly script: Script | undefined;
  readonly onConfirm: () => void;
  readonly onClose: () => void;
}

function Apply({ now, script, onConfirm, onClose }: ApplyProps) {
  const destructions = script?.destructions ?? [];
  const { statements } = script ?? {};
  const what = statements === undefined ? 'All statements' : `${formatCount(statements)} ${statements === 1 ? 'statement' : 'statements'}`;
  return (
    <Confirmation
      title={`Apply “${now.name.trim()}”?`}
      action="Apply"
      isDangerous={destructions.length > 0}
      onConfirm={onConfirm}
      onClose={onClose}
    >
      <p>
        {what} {statements === 1 ? 'runs' : 'run'} in the database of {me.value?.orgName}
        {now.isTransaction ? ', in one transaction.' : ', one by one.'}
      </p>
      {destructions.length > 0 && (
        <Notice tone="warning">
          <DestructionList of={destructions} />
        </Notice>
      )}
    </Confirmation>
  );
}

function OutcomeNotice({ of: known }: { readonly of: Outcome }) {
  if (known.state === 'running') return null;
  return known.state === 'failed' ? <Failed {...known} /> : <Done {...known} />;
}

function Done({ request, reply: { migration, alreadyApplied, warnings } }: Extract<Outcome, { readonly state: 'done' }>) {
  const figures = `${formatCount(migration.statementCount)} ${migration.statementCount === 1 ? 'statement' : 'statements'} in ${formatDuration(migration.durationMs)}`;
  if (alreadyApplied) {
    return (
      <>
        <Notice tone="info">
          <p class="notice-title">“{migration.name}” was already applied.</p>
          <p>The same SQL was applied at {formatTime(migration.appliedAt)}. Nothing has been changed now.</p>
        </Notice>
        <Warnings of={warnings} />
      </>
    );
  }
  return (
    <>
      <Notice tone="good">
        <p class="notice-title">
          {request.dryRun ? `The dry run went through: ${figures}.` : `“${migration.name}” is applied: ${figures}.`}
        </p>
        {request.dryRun && <p>{dryRunSentence(request)}</p>}
      </Notice>
      <Warnings of={warnings} />
    </>
  );
}

function dryRunSentence({ rollbackSql }: MigrationRequest): string {
  return rollbackSql === undefined
    ? 'It was rolled back: nothing is kept.'
    : 'It ran forward, back and forward again: the way back works. All was rolled back, and nothing is kept.';
}

/** Statements that destroy data, and what PostgreSQL has said while they ran. */
function Warnings({ of: warnings }: { readonly of: readonly MigrationWarning[] }) {
  if (warnings.length === 0) return null;
  return (
    <Notice tone="warning">
      <ul class="by-line">
        {warnings.map(({ line, message, severity, code }, index) => (
          <li key={index}>
            <span class="muted number">{line === undefined ? severity.toLowerCase() : `line ${line}`}</span>
            <span>
              {message}
              {code !== 'destructive_statement' && line !== undefined && <span class="muted"> {severity.toLowerCase()}</span>}
            </span>
          </li>
        ))}
      </ul>
    </Notice>
  );
}

function Failed({ request, error }: Extract<Outcome, { readonly state: 'failed' }>) {
  const problem = error instanceof ApiError ? error.problem : undefined;
  const place = problem && placeOf(problem);
  // A migration that was carried out although no answer came is not carried out twice.
  const mayHelp = problem?.retryable === true || problem?.code === 'unreachable';
  const isBack = problem?.phase === 'rollback';
  const text = isBack ? request.rollbackSql : request.sql;
  return (
    <>
      <ProblemNotice error={error} {...(mayHelp ? { onRetry: () => void run(request) } : {})} />
      {place !== undefined && text !== undefined && (
        <CodeBlock label={`Line ${place.line} of ${isBack ? 'what undoes it' : 'the SQL'}`} text={excerptOf(text, place)} />
      )}
      {problem !== undefined && <p class="muted">{consequenceOf(problem, request)}</p>}
    </>
  );
}

/** `active_sql_transaction` */
const CANNOT_IN_TRANSACTION = '25001';

function consequenceOf(
  { code, phase, sqlstate, statementsApplied, transactionStatus }: Problem,
  { name, dryRun }: MigrationRequest,
): string {
  if (code === 'migration_checksum_mismatch') return `“${name}” has been applied with other SQL, and stays as it is.`;
  if (sqlstate === CANNOT_IN_TRANSACTION) return 'Choose “In one transaction” off, with this statement in a migration of its own.';
  if (statementsApplied !== undefined && statementsApplied > 0)
    return `${formatCount(statementsApplied)} statements before it went through, and stay. The history says that it failed.`;
  if (phase === 'repeat')
    return 'It could not be applied again after it was undone: what undoes it leaves something behind. Nothing is kept.';
  if (dryRun) return 'Nothing is kept.';
  return transactionStatus === 'rolled_back' ? 'It was rolled back: nothing has changed.' : '';
}

/** One migration of the history, with its SQL. */
function MigrationDialog({
  of: migration,
  onClose,
  onRolledBack,
}: {
  readonly of: Migration;
  readonly onClose: () => void;
  readonly onRolledBack: () => void;
}) {
  const [isAsked, ask] = useState(false);
  const { name, status, isReversible, rolledBackAt, appliedAt, durationMs, statementCount, statementsApplied, checksum } = migration;
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
      {rolledBackAt !== null && (
        <Notice tone="info">
          <p>It was rolled back at {formatTime(rolledBackAt)}. Applied again, it runs again.</p>
        </Notice>
      )}
      {status === 'applied' && isReversible && (
        <footer>
          <Button kind="danger" onClick={() => ask(true)}>
            Roll back …
          </Button>
        </footer>
      )}
      {isAsked && <RollBack name={name} sql={load.data?.rollbackSql ?? undefined} onDone={onRolledBack} onClose={() => ask(false)} />}
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

interface RollBackProps {
  readonly name: string;
  readonly sql: string | undefined;
  readonly onDone: () => void;
  readonly onClose: () => void;
}

/** Shows what undoes a migration before that runs; it can be tried first. */
function RollBack({ name, sql, onDone, onClose }: RollBackProps) {
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>();
  const [tried, setTried] = useState<readonly MigrationWarning[]>();
  const isNotNewest = error instanceof ApiError && error.problem.code === 'migration_not_newest';
  const send = async (dryRun: boolean) => {
    setBusy(true);
    setTried(undefined);
    try {
      const { warnings } = await rollBack(name, { dryRun, force: isNotNewest });
      if (dryRun) setTried(warnings);
      else {
        say(`“${name}” is rolled back.`);
        onDone();
      }
    } catch (thrown) {
      setError(thrown);
    }
    setBusy(false);
  };
  return (
    <Confirmation
      title={`Roll back “${name}”?`}
      action={isNotNewest ? 'Roll back all the same' : 'Roll back'}
      isDangerous
      isBusy={isBusy}
      onConfirm={() => void send(false)}
      onClose={onClose}
    >
      {sql !== undefined && <CodeBlock text={sql} label="This runs, in one transaction" />}
      <div class="actions">
        <Button icon="play" isDisabled={isBusy} onClick={() => void send(true)}>
          Dry run
        </Button>
      </div>
      {tried !== undefined && (
        <>
          <Notice tone="good">
            <p>The dry run went through. Nothing is kept.</p>
          </Notice>
          <Warnings of={tried} />
        </>
      )}
      {error !== undefined && tried === undefined && <ProblemNotice error={error} />}
    </Confirmation>
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
