import { ServiceError } from '../../errors.ts';
import { PostgresError } from '../../protocol/error-fields.ts';
import { TimeSlices } from '../../runtime/event-loop.ts';
import { findDestruction } from '../../syntax/destructive-statements.ts';
import { checkStatement, checkText } from '../../syntax/http-restrictions.ts';
import { LineCounter, lineAndColumnAt, lineAndColumnOfError } from '../../syntax/line-and-column.ts';
import type { LexerOptions } from '../../syntax/scanner.ts';
import { eachStatement, type SqlStatement } from '../../syntax/split-statements.ts';
import type { FailurePlace } from '../execution/statement-failure.ts';
import { failureAt } from '../execution/transactions/in-transaction.ts';
import type { Completion } from '../session/pipeline-request.ts';
import type { SqlSession } from '../session/session.ts';
import { charactersOf, type Warning } from '../session/warnings.ts';

/** A notice, or a warning of a statement that destroys data, with its position in the text. */
export interface MigrationScriptWarning extends Warning {
  /** From 0. */
  readonly statementIndex?: number;
  /** From 1. */
  readonly line?: number;
  readonly column?: number;
}

const WARNINGS_MAX = 100;
/** Limit of their texts together. */
const WARNINGS_MAX_CHARACTERS = 65_536;
const STATEMENTS_MAX = 250_000;

/** SQL text of several statements, without parameters. Their rows are ignored. */
export class MigrationScript {
  readonly sql: string;
  readonly statements: readonly SqlStatement[];
  readonly #options: LexerOptions;
  readonly #phase: FailurePlace['phase'];

  private constructor(sql: string, statements: readonly SqlStatement[], phase: FailurePlace['phase'], options: LexerOptions) {
    this.sql = sql;
    this.statements = statements;
    this.#phase = phase;
    this.#options = options;
  }

  /**
   * Reads a text, in time slices.
   * @param phase the phase that a failure is reported with
   * @throws ServiceError `invalid_request` for text without a statement, or with too many
   * @throws StatementFailure for a statement that cannot be part of a script, before anything has run
   */
  static async read(sql: string, phase: FailurePlace['phase'], options: LexerOptions): Promise<MigrationScript> {
    checkText(sql);
    const statements: SqlStatement[] = [];
    const slices = new TimeSlices();
    await slices.pause();
    for (const statement of eachStatement(sql, options)) {
      await slices.pause();
      if (statement === undefined) continue;
      check(sql, statement, { phase, statementIndex: statements.length });
      statements.push(statement);
      if (statements.length > STATEMENTS_MAX) throw new ServiceError('invalid_request', `sql has more than ${STATEMENTS_MAX} statements`);
    }
    // After the last token there may be megabytes of white space.
    await slices.pause();
    return new MigrationScript(sql, statements, phase, options);
  }

  /** Warnings of statements that destroy data; the first hundred. */
  async destructions(): Promise<readonly MigrationScriptWarning[]> {
    const warnings: MigrationScriptWarning[] = [];
    const counter = new LineCounter(this.sql);
    const slices = new TimeSlices();
    for (const [statementIndex, { text, start }] of this.statements.entries()) {
      await slices.pause();
      for (const { message, offset } of findDestruction(text, this.#options)) {
        if (warnings.length === WARNINGS_MAX) return warnings;
        const place = counter.at(start + offset);
        warnings.push({ severity: 'WARNING', code: 'destructive_statement', message, statementIndex, ...place });
      }
    }
    return warnings;
  }

  /**
   * Runs the statements one after another.
   * @param check called after each statement with its outcome; an error that it throws becomes the statement's failure
   * @returns their notices, the first hundred
   * @throws StatementFailure
   */
  async run(
    session: SqlSession,
    check: (completion: Completion, statementIndex: number) => void | Promise<void>,
    phase = this.#phase,
  ): Promise<readonly MigrationScriptWarning[]> {
    const warnings: MigrationScriptWarning[] = [];
    let characters = 0;
    for (const [index, { text, start }] of this.statements.entries()) {
      let parameters = 0;
      try {
        await session.rewriteAhead(text);
        const completion = await session.run(text, [], {
          parameters: (types) => {
            parameters = types.length;
          },
        });
        session.throwIfAborted();
        await check(completion, index);
        for (const warning of completion.warnings) {
          if (warnings.length === WARNINGS_MAX || characters > WARNINGS_MAX_CHARACTERS) break;
          warnings.push({ ...warning, statementIndex: index });
          characters += charactersOf(warning);
        }
      } catch (error) {
        throw failureAt(explained(error, parameters), { phase, statementIndex: index, ...lineAndColumnOfError(this.sql, start, error) });
      }
    }
    return warnings;
  }
}

function check(sql: string, { text, start }: SqlStatement, place: FailurePlace): void {
  try {
    checkStatement(text, 'transaction');
  } catch (error) {
    throw failureAt(error, { ...place, ...lineAndColumnAt(sql, start) });
  }
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
