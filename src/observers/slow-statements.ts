import { recordStatement } from '../catalog/audit/records.ts';
import type { ObservationHandlers, Observe } from '../observation.ts';

/** A longer text is not hashed, because that would keep other clients waiting. */
const HASHED_MAX_CHARACTERS = 8_192;

/** Tells of statements that take long: whose they are, for how long they ran, and a hash of their text. Never the text. */
export class SlowStatements {
  /** Statements that take so long are slow; infinite: none is. */
  readonly afterMs: number;
  readonly #observe: Observe;

  /** @param afterMs 0: none is slow */
  constructor(afterMs: number, observe: Observe) {
    this.afterMs = afterMs === 0 ? Number.POSITIVE_INFINITY : afterMs;
    this.#observe = observe;
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
