import { recordStatement } from '../catalog/audit/records.ts';
import type { Config } from '../config.ts';
import type { ObservationHandlers, Observe } from '../observation.ts';

/** A longer text is not hashed, because that would keep other clients waiting. */
const HASHED_MAX_CHARACTERS = 8_192;

type SlowStatementConfig = Pick<Config, 'POSTERN_SLOW_STATEMENT_MS'>;

/** Tells of statements that take long: whose they are, for how long they ran, and a hash of their text. Never the text. */
export class SlowStatements {
  readonly #config: SlowStatementConfig;
  readonly #observe: Observe;

  constructor(config: SlowStatementConfig, observe: Observe) {
    this.#config = config;
    this.#observe = observe;
  }

  /** Statements that take so long are slow; infinite: none is. */
  get afterMs(): number {
    return this.#config.POSTERN_SLOW_STATEMENT_MS || Number.POSITIVE_INFINITY;
  }

  /** Requests over HTTP that ran SQL. The wire door tells of its own. */
  get handlers(): ObservationHandlers {
    return {
      'http.request': ({ actor, statement, outcome: { durationMs = 0 } }) => {
        if (durationMs >= this.afterMs && actor !== undefined && statement !== undefined)
          this.tell(actor.organizationId, 'http', durationMs, statement.sql);
      },
    };
  }

  /** @param sql the whole text; undefined if it is not known */
  tell(organizationId: string, door: 'http' | 'wire', durationMs: number, sql: string | undefined): void {
    const isHashed = sql !== undefined && sql.length <= HASHED_MAX_CHARACTERS;
    this.#observe({
      name: 'statement.slow',
      organizationId,
      door,
      durationMs: Math.round(durationMs),
      ...(isHashed ? { sqlHash: recordStatement({ sql }).sqlHash } : {}),
      message: `a statement of ${organizationId} took ${Math.round(durationMs)} ms`,
    });
  }
}
