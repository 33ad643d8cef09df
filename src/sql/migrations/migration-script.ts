import { ServiceError } from '../../errors.ts';
import { TimeSlices } from '../../runtime/event-loop.ts';
import { checkStatement, checkText } from '../../syntax/http-restrictions.ts';
import { LineCounter, lineAndColumnAt } from '../../syntax/line-and-column.ts';
import { eachStatement, type SqlStatement } from '../../syntax/split-statements.ts';
import type { LexerOptions } from '../../syntax/tokens/scanner.ts';
import { findDestruction } from '../../syntax/traits/destructive-statements.ts';
import { type FailurePlace, failureAt } from '../execution/statement-failure.ts';
import type { Warning } from '../session/warnings.ts';

/** A notice, or a warning of a statement that destroys data, with its position in the text. */
export interface MigrationScriptWarning extends Warning {
  /** From 0. */
  readonly statementIndex?: number;
  /** From 1. */
  readonly line?: number;
  readonly column?: number;
}

export const WARNINGS_MAX = 100;
const STATEMENTS_MAX = 250_000;

/** SQL text of several statements, without parameters. Their rows are ignored. */
export class MigrationScript {
  readonly sql: string;
  readonly statements: readonly SqlStatement[];
  readonly #options: LexerOptions;
  /** The phase that a failure is reported with. */
  readonly phase: FailurePlace['phase'];

  private constructor(sql: string, statements: readonly SqlStatement[], phase: FailurePlace['phase'], options: LexerOptions) {
    this.sql = sql;
    this.statements = statements;
    this.phase = phase;
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
}

function check(sql: string, { text, start }: SqlStatement, place: FailurePlace): void {
  try {
    checkStatement(text, 'transaction');
  } catch (error) {
    throw failureAt(error, { ...place, ...lineAndColumnAt(sql, start) });
  }
}
