import { randomBytes } from 'node:crypto';
import type { Counted } from '../catalog/statement-counters.ts';
import type { ErrorFields, StatementShape } from '../protocol/backend.ts';
import type { StatementLatency } from './statement-latency.ts';

/** A query text with its parameter types, which has the same name on every backend of an organization. */
export interface ServerStatement {
  /** The part of a Parse message after the name: the text, a NUL, and the parameter types. It is compared as a whole, never by hash. */
  readonly definition: Buffer;
  /** Its name on the server, without the NUL that ends it. */
  readonly name: Buffer;
  /** The settings that the meaning of its text depends on; undefined where the statement belongs to one client alone. */
  readonly context: string | undefined;
  /** A backslash in its text's plain strings is an escape: `standard_conforming_strings` was off when the client sent it. */
  readonly hasEscapes: boolean;
  /** Some backend has parsed it without an error. */
  proven: boolean;
  /** It has been sent to some backend. */
  isSent: boolean;
  /**
   * The description that clients have: the one of the first backend that was sent a Describe for it. A backend on which the
   * description is another one, because tables or the search path have changed, does not keep it prepared.
   */
  shape: StatementShape | undefined;
  /** How long it takes, once that was first asked for; null where its latency must not be used. */
  latency?: StatementLatency | null;
  /** Counts its runs, once one has been counted. */
  counted: Counted | undefined;
}

/** Names have a random prefix, so that no client can use another's statement, by accident or on purpose. */
const PREFIX = `postern_${randomBytes(6).toString('hex')}_`;
/** Matches the names of server statements in a text. */
export const SERVER_STATEMENT = new RegExp(`${PREFIX}\\d+`, 'g');

export function mentionsServerStatement(text: string): boolean {
  return text.includes(PREFIX);
}

let named = 0;

/** A statement with a new, unique name. @param context undefined: it belongs to one client alone */
export function newServerStatement(definition: Buffer, context?: string, hasEscapes = false): ServerStatement {
  named += 1;
  return {
    definition,
    name: Buffer.from(`${PREFIX}${named}`),
    context,
    hasEscapes,
    proven: false,
    isSent: false,
    shape: undefined,
    counted: undefined,
  };
}

/**
 * The definition to prepare a statement from again. Its parameter types are those that its clients have been told, as
 * PostgreSQL keeps them when it plans a statement again.
 */
export function definitionToReprepare(definition: Buffer, shape: StatementShape | undefined): Buffer {
  if (shape?.parameters === undefined) return definition;
  return Buffer.concat([definition.subarray(0, definition.indexOf(0) + 1), shape.parameters]);
}

/**
 * What an error says of the plan of a statement that had been prepared. `invalidate`: tables or types have changed unnoticed. `forget`:
 * the statement may not fit the database any more. `check`: perhaps only its parameters have other types now.
 */
export type Staleness = 'invalidate' | 'forget' | 'check' | undefined;

/** The columns of the result have changed (0A000), or what the plan has the OID of is looked up in vain (XX000). */
const CHANGED_SCHEMA = /^(?:cached plan must not|cache lookup failed for|could not open relation with OID) /;
/** Its presence on the backend (26000, invalid_sql_statement_name), what it names (class 42), or another use of an OID. */
const STALE_PLAN = /^(?:0A000|26000|42...|XX000)$/;
/** A parameter's type does not take the value. */
const REFUSED_PARAMETER = /^2[23]/;
/** What raises the errors of PL/pgSQL's RAISE: a function's own, with any code. */
const RAISE = 'exec_stmt_raise';

/**
 * A plan refers to objects that may have been changed, or dropped and made anew, since it was made. Such a statement has had no effect.
 * @param isBound the statement had its parameters: it was being executed
 * @see https://www.postgresql.org/docs/current/errcodes-appendix.html
 */
export function stalenessOf({ code, message, routine }: ErrorFields, isBound: boolean): Staleness {
  if (STALE_PLAN.test(code) && routine !== RAISE) return CHANGED_SCHEMA.test(message) ? 'invalidate' : 'forget';
  return !isBound && REFUSED_PARAMETER.test(code) ? 'check' : undefined;
}
