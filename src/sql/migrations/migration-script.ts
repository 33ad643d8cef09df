import { ServiceError } from '../../errors.ts';
import { TimeSlices } from '../../runtime/event-loop.ts';
import { findDestruction } from '../../syntax/destructive-statements.ts';
import { checkStatement, checkText } from '../../syntax/http-restrictions.ts';
import { LineCounter, lineAndColumnAt } from '../../syntax/line-and-column.ts';
import { stringsAfter } from '../../syntax/names.ts';
import { sessionTraitsOf } from '../../syntax/session-traits.ts';
import { eachStatement, type SqlStatement } from '../../syntax/statements.ts';
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

/** A statement, and the value of `standard_conforming_strings` with which it was found in the text. */
interface ScriptStatement extends SqlStatement {
  readonly areStringsStandard: boolean;
}

/** SQL text of several statements, without parameters. Their rows are ignored. */
export class MigrationScript {
  readonly sql: string;
  /** The phase that a failure is reported with. */
  readonly phase: FailurePlace['phase'];
  readonly #statements: ScriptStatement[] = [];
  readonly #lastBackslash: number;
  /** A statement must be checked before it runs, because it may be another one by then. */
  #isUnchecked = false;

  private constructor(sql: string, phase: FailurePlace['phase']) {
    this.sql = sql;
    this.phase = phase;
    this.#lastBackslash = sql.lastIndexOf('\\');
  }

  /**
   * Reads a text, in time slices.
   * @param phase the phase that a failure is reported with
   * @param areStringsStandard the session's value of `standard_conforming_strings`
   * @throws ServiceError `invalid_request` for text without a statement, or with too many
   * @throws StatementFailure for a statement that cannot be part of a script, before anything has run
   */
  static async read(sql: string, phase: FailurePlace['phase'], areStringsStandard: boolean): Promise<MigrationScript> {
    checkText(sql);
    const script = new MigrationScript(sql, phase);
    const slices = new TimeSlices();
    await slices.pause();
    await script.#read(areStringsStandard, slices);
    // After the last token there may be megabytes of white space.
    await slices.pause();
    return script;
  }

  /** As far as they are known: a statement that runs may change how those behind it are read. */
  get statements(): readonly SqlStatement[] {
    return this.#statements;
  }

  /** Reads the whole text. What SET does to the rest of the text is foreseen; {@link inTurn} finds out the rest. */
  async #read(start: boolean, slices: TimeSlices): Promise<void> {
    let areStringsStandard = start;
    let offset: number | undefined = 0;
    while (offset !== undefined) {
      const from: number = offset;
      offset = undefined;
      for (const statement of eachStatement(this.sql, { offset: from, standardConformingStrings: areStringsStandard })) {
        await slices.pause();
        if (statement === undefined) continue;
        await this.#checkAhead(statement, slices);
        this.#add({ ...statement, areStringsStandard });
        const value = stringsAfter(statement.text, start) ?? areStringsStandard;
        if (value === areStringsStandard) continue;
        areStringsStandard = value;
        offset = endOf(statement);
        break;
      }
    }
  }

  #add(statement: ScriptStatement): void {
    this.#statements.push(statement);
    if (this.#statements.length > STATEMENTS_MAX)
      throw new ServiceError('invalid_request', `sql has more than ${STATEMENTS_MAX} statements`);
  }

  /** A statement that is refused may turn out to be a part of a string, if one before it changes how strings are read. */
  async #checkAhead(statement: SqlStatement, slices: TimeSlices): Promise<void> {
    if (this.#isUnchecked) return;
    try {
      this.#check(statement, this.#statements.length);
    } catch (error) {
      if (!this.sql.slice(0, statement.start).includes('\\') || !(await this.#mayChangeSettings(slices))) throw error;
      this.#isUnchecked = true;
    }
  }

  async #mayChangeSettings(slices: TimeSlices): Promise<boolean> {
    for (const { text } of this.#statements) {
      await slices.pause();
      if (sessionTraitsOf(text).changesSettings) return true;
    }
    return false;
  }

  #check({ text, start }: SqlStatement, statementIndex: number): void {
    try {
      checkStatement(text, 'transaction');
    } catch (error) {
      throw failureAt(error, { phase: this.phase, statementIndex, ...lineAndColumnAt(this.sql, start) });
    }
  }

  /**
   * The statements as the server reads them, each after the one before it has run.
   * @param areStringsStandard the session's present value of `standard_conforming_strings`
   * @throws as {@link read}
   */
  async *inTurn(areStringsStandard: () => boolean): AsyncGenerator<SqlStatement, void> {
    const statements = this.#statements;
    let index = 0;
    for (; index < statements.length; index += 1) {
      const statement = statements[index] as ScriptStatement;
      if (statement.start <= this.#lastBackslash && statement.areStringsStandard !== areStringsStandard()) break;
      if (this.#isUnchecked) this.#check(statement, index);
      yield statement;
    }
    // From here on the text is read anew, statement by statement.
    let offset = statements[index]?.start ?? this.sql.length;
    statements.length = index;
    const slices = new TimeSlices();
    for (let statement = await this.#readOne(offset, areStringsStandard(), slices); statement !== undefined; ) {
      this.#check(statement, statements.length);
      this.#add(statement);
      yield statement;
      offset = endOf(statement);
      statement = await this.#readOne(offset, areStringsStandard(), slices);
    }
  }

  async #readOne(offset: number, areStringsStandard: boolean, slices: TimeSlices): Promise<ScriptStatement | undefined> {
    for (const statement of eachStatement(this.sql, { offset, standardConformingStrings: areStringsStandard })) {
      await slices.pause();
      if (statement !== undefined) return { ...statement, areStringsStandard };
    }
    return undefined;
  }

  /** Warnings of statements that destroy data; the first hundred. */
  async destructions(): Promise<readonly MigrationScriptWarning[]> {
    const warnings: MigrationScriptWarning[] = [];
    const counter = new LineCounter(this.sql);
    const slices = new TimeSlices();
    for (const [statementIndex, { text, start, areStringsStandard }] of this.#statements.entries()) {
      await slices.pause();
      for (const { message, offset } of findDestruction(text, { standardConformingStrings: areStringsStandard })) {
        if (warnings.length === WARNINGS_MAX) return warnings;
        const place = counter.at(start + offset);
        warnings.push({ severity: 'WARNING', code: 'destructive_statement', message, statementIndex, ...place });
      }
    }
    return warnings;
  }
}

/** The offset behind a statement, where its semicolon may be. */
function endOf({ start, text }: SqlStatement): number {
  return start + text.length;
}
