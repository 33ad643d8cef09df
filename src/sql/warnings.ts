import { FIXED_SETTINGS } from '../placement/cluster.ts';
import type { ErrorFields } from '../protocol/backend.ts';
import { defaultsOfRoles } from '../syntax/session-traits.ts';
import { leadingKeywords } from '../syntax/statements.ts';

/** A notice or warning of Postgres, or of Postern, about a statement that succeeded. */
export interface Warning {
  /** WARNING, NOTICE, INFO …: the field `V` of NoticeResponse, which is not localized. */
  readonly severity: string;
  /** SQLSTATE. */
  readonly code: string;
  readonly message: string;
  readonly detail?: string;
  readonly hint?: string;
  readonly where?: string;
}

const WARNINGS_MAX = 100;
const TEXT_MAX_CHARACTERS = 4_000;
/** The limit for all texts together. */
const TEXTS_MAX_CHARACTERS = 65_536;

/** Collects the first hundred notices, or fewer long ones, so that a loop with RAISE NOTICE cannot fill the memory. */
export class Notices {
  #kept: Warning[] = [];
  #characters = 0;
  #dropped = 0;

  add(fields: ErrorFields): void {
    if (this.#kept.length < WARNINGS_MAX && this.#characters < TEXTS_MAX_CHARACTERS) this.#keep(warning(fields));
    else this.#dropped += 1;
  }

  #keep(warning: Warning): void {
    this.#kept.push(warning);
    this.#characters += charactersOf(warning);
  }

  /** Returns the notices since the last call. */
  take(): readonly Warning[] {
    const taken = this.#kept;
    if (this.#dropped > 0) taken.push({ severity: 'WARNING', code: '01000', message: `${this.#dropped} more notices are left out` });
    this.#kept = [];
    this.#characters = 0;
    this.#dropped = 0;
    return taken;
  }
}

function warning({ severity, code, message, detail, hint, where }: ErrorFields): Warning {
  return {
    severity,
    code,
    message: cut(message),
    ...(detail === undefined ? {} : { detail: cut(detail) }),
    ...(hint === undefined ? {} : { hint: cut(hint) }),
    ...(where === undefined ? {} : { where: cut(where) }),
  };
}

/** Adds up the lengths of a warning's texts. */
export function charactersOf({ message, detail = '', hint = '', where = '' }: Warning): number {
  return message.length + detail.length + hint.length + where.length;
}

function cut(text: string): string {
  return text.length <= TEXT_MAX_CHARACTERS ? text : `${text.slice(0, TEXT_MAX_CHARACTERS)}…`;
}

/** SQLSTATE no_active_sql_transaction: Postgres' own warning that SET LOCAL and SET TRANSACTION have no effect here. */
const WITHOUT_EFFECT = '25P01';

/** What belongs to the session, by the tag of the command that makes it. */
const OF_SESSION: ReadonlyMap<string, string> = new Map([
  ['SET', 'the setting'],
  ['PREPARE', 'the prepared statement'],
  ['DECLARE CURSOR', 'the cursor'],
]);

/** Adds a warning that something ends with the call that makes it, as nobody expects who comes from psql. */
function withEndOfSession(warnings: readonly Warning[], command: string, sql: string): readonly Warning[] {
  const ends = OF_SESSION.get(command) ?? (makesTemporary(command, sql) ? 'what is temporary' : undefined);
  if (ends === undefined || warnings.some(({ code }) => code === WITHOUT_EFFECT)) return warnings;
  const hint =
    'Send it and the statements that need it as one transaction: POST /api/transaction. Or connect over the PostgreSQL protocol.';
  return [...warnings, { severity: 'WARNING', code: '01000', message: `${ends} ends with this call`, hint }];
}

/** Adds what there is to say of the statement. @param command its tag */
export function withAdvice(warnings: readonly Warning[], command: string, sql: string): readonly Warning[] {
  if (command !== 'ALTER ROLE') return withEndOfSession(warnings, command, sql);
  const unheeded = defaultsOfRoles(sql).map(unheededDefault);
  return [...warnings, ...unheeded.filter((notice) => notice !== undefined)];
}

/** What `ALTER ROLE … SET` of a setting that sessions start with anyway is told; undefined for others, which it changes. */
export function unheededDefault(setting: string): Warning | undefined {
  if (!FIXED_SETTINGS.has(setting)) return undefined;
  return {
    severity: 'NOTICE',
    code: '00000',
    message: `new sessions do not start with this value of "${setting}"`,
    hint: 'Postern gives it to each session. SET changes it in a session that is there, and over the PostgreSQL protocol so does options=-c in the connection string.',
  };
}

/** `CREATE [OR REPLACE] [GLOBAL | LOCAL] TEMPORARY …`; with AS its tag is SELECT. */
const TEMPORARY_WORDS = 4;

function makesTemporary(command: string, sql: string): boolean {
  if (!command.startsWith('CREATE') && (command !== 'SELECT' || !/^\s*create\b/i.test(sql))) return false;
  return leadingKeywords(sql, TEMPORARY_WORDS).some((word) => word === 'TEMP' || word === 'TEMPORARY');
}

/** SQLSTATE duplicate_column. */
const DUPLICATE_COLUMN = '42701';

/** The warning for two columns of one name, of which a row that is an object keeps only one. */
export function repeatedColumn(name: string): Warning {
  return {
    severity: 'WARNING',
    code: DUPLICATE_COLUMN,
    message: `several columns are named "${name}"; only the last of them is in the rows`,
    hint: 'Give the columns different names, or ask for rows as arrays.',
  };
}
