import { ServiceError } from '../../errors.ts';
import { PostgresError } from '../../protocol/backend.ts';
import { lineAndColumnOfError } from '../../syntax/line-and-column.ts';
import { sideEffectsOf } from '../../syntax/side-effects.ts';
import { failureAt } from '../execution/statement-failure.ts';
import type { Completion } from '../session/replies-and-completion.ts';
import type { SqlSession } from '../session/sql-session.ts';
import { charactersOf } from '../session/warnings.ts';
import { type MigrationScript, type MigrationScriptWarning, WARNINGS_MAX } from './migration-script.ts';

/** Limit of the texts of all warnings together. */
const WARNINGS_MAX_CHARACTERS = 65_536;

/**
 * Runs the statements one after another.
 * @param check called after each statement with its outcome; an error that it throws becomes the statement's failure
 * @returns their notices, the first hundred
 * @throws StatementFailure
 */
export async function runScript(
  session: SqlSession,
  script: MigrationScript,
  check: (completion: Completion, statementIndex: number) => void | Promise<void>,
  phase = script.phase,
): Promise<readonly MigrationScriptWarning[]> {
  const warnings: MigrationScriptWarning[] = [];
  const { sql } = script;
  let characters = 0;
  let index = 0;
  for await (const { text, start } of script.inTurn(() => session.areStringsStandard)) {
    let parameters = 0;
    try {
      session.makesOptions(sideEffectsOf(text).customOptions);
      await session.rewriteAhead(text);
      const startedAt = performance.now();
      const running = session.run(text, [], {
        parameters: (types) => {
          parameters = types.length;
        },
      });
      running.catch((error: unknown) => session.countFailure(text, startedAt, error));
      const completion = await running;
      session.count(text, startedAt, completion.tag?.rowCount, 0);
      session.throwIfAborted();
      await check(completion, index);
      for (const warning of completion.warnings) {
        if (warnings.length === WARNINGS_MAX || characters > WARNINGS_MAX_CHARACTERS) break;
        warnings.push({ ...warning, statementIndex: index });
        characters += charactersOf(warning);
      }
    } catch (error) {
      throw failureAt(explained(error, parameters), { phase, statementIndex: index, ...lineAndColumnOfError(sql, start, error) });
    }
    index += 1;
  }
  return warnings;
}

/** Adds a hint, because Postgres' error does not say what to do. */
function explained(error: unknown, parameters: number): unknown {
  if (!(error instanceof PostgresError)) return error;
  if (parameters > 0)
    return new ServiceError('invalid_request', 'a migration has no values for parameters such as $1', { sqlstate: '08P01' });
  // Such as CREATE INDEX CONCURRENTLY.
  if (error.fields.routine !== 'PreventInTransactionBlock') return error;
  return new PostgresError({ hint: 'Send it as a migration of its own with "transaction": false.', ...error.fields });
}
