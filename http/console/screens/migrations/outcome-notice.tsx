import { ApiError, type Problem } from '../../api/api-error.ts';
import { formatCount, formatDuration, formatTime } from '../../format.ts';
import { CodeBlock } from '../../parts/copying/code-block.tsx';
import { Notice, ProblemNotice } from '../../parts/notice.tsx';
import { excerptOf } from './error-excerpt.ts';
import { placeOf } from './error-place.ts';
import type { MigrationRequest, MigrationWarning } from './migration-calls.ts';
import { type Outcome, run } from './run-migration.ts';

export function OutcomeNotice({ of: known }: { readonly of: Outcome }) {
  if (known.state === 'running') return null;
  return known.state === 'failed' ? <Failed {...known} /> : <Done {...known} />;
}

function Done({ request, reply: { migration, alreadyApplied, warnings } }: Extract<Outcome, { readonly state: 'done' }>) {
  const figures = `${formatCount(migration.statementCount)} ${migration.statementCount === 1 ? 'statement' : 'statements'} in ${formatDuration(migration.durationMs)}`;
  if (alreadyApplied) {
    return (
      <Notice tone="info">
        <p class="notice-title">“{migration.name}” was already applied.</p>
        <p>The same SQL was applied at {formatTime(migration.appliedAt)}. Nothing has been changed now.</p>
      </Notice>
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
