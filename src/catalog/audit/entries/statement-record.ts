import { createHash } from 'node:crypto';
import type { ObservedStatement } from '../../../observation.ts';
import { TimeSlices } from '../../../runtime/event-loop.ts';
import { mayHoldPassword, mayHoldSecret, redactSecrets } from '../../../syntax/redaction.ts';
import { LeadingWhitespace } from '../../../syntax/scanner.ts';
import type { RecordedStatement } from './entry.ts';

const SQL_CHARACTERS_MAX = 2_000;
/** Redaction visits every literal, and there may be millions. So only this much of a text that may hold a secret is recorded. */
const REDACTED_CHARACTERS_MAX = 65_536;
/** A longer text is searched for secrets and hashed in parts. */
const PART_CHARACTERS = 65_536;

/** The recorded form of SQL text, from either door. */
export interface RecordedText {
  /** The beginning of the text, from its first token on, with secrets masked. */
  readonly sql: string;
  /** SHA-256 of the whole text, with secrets masked. */
  readonly sqlHash: string;
}

export function recordStatement({ sql, sqlHash, command, paramCount }: ObservedStatement): RecordedStatement {
  const text = sqlHash === undefined ? recordText(sql) : { sql, sqlHash };
  return { ...text, command: command ?? null, paramCount: paramCount ?? null };
}

/**
 * Secrets are masked, then the text is hashed, then it is cut. Of a long text that may hold secrets only the beginning is
 * hashed: short passwords could be found by trying, if the hash covered unmasked text.
 */
export function recordText(sql: string): RecordedText {
  const start = Math.max(0, new LeadingWhitespace().codeStart(sql));
  if (!mayHoldSecret(sql)) return { sql: sql.slice(start, start + SQL_CHARACTERS_MAX), sqlHash: sha256(sql) };
  return recordBeginning(sql.slice(start, start + REDACTED_CHARACTERS_MAX), mayHoldPassword(sql));
}

function recordBeginning(beginning: string, holdsPassword: boolean): RecordedText {
  const redacted = redactSecrets(beginning, holdsPassword);
  return { sql: redacted.slice(0, SQL_CHARACTERS_MAX), sqlHash: sha256(redacted) };
}

/** Whether to use {@link recordInParts}: {@link recordText} would take more than a millisecond. */
export function isLongText(sql: string): boolean {
  return sql.length > PART_CHARACTERS;
}

/** As {@link recordText}, in time slices. */
export async function recordInParts(sql: string): Promise<RecordedText> {
  const record = new StreamedRecord();
  const slices = new TimeSlices();
  for (let start = 0; start < sql.length; ) {
    const end = endOfPart(sql, start + PART_CHARACTERS);
    record.add(Buffer.from(sql.slice(start, end)).toString('latin1'));
    start = end;
    await slices.pause();
  }
  return record.recorded;
}

/** Keeps surrogate pairs together. */
function endOfPart(sql: string, end: number): number {
  return (sql.charCodeAt(end - 1) & 0xfc00) === 0xd800 ? end + 1 : end;
}

/** The record of several texts that were sent together. */
export function recordTogether(texts: readonly RecordedText[]): RecordedText {
  const [first, ...more] = texts;
  if (first !== undefined && more.length === 0) return first;
  return {
    sql: texts
      .map(({ sql }) => sql)
      .join(';\n')
      .slice(0, SQL_CHARACTERS_MAX),
    sqlHash: sha256(texts.map(({ sqlHash }) => sqlHash).join('\n')),
  };
}

const COMMANDS_MAX = 20;

/** The distinct commands of statements that were sent together. @returns undefined when there are none */
export function listCommands(commands: Iterable<string>): string | undefined {
  const names = [...new Set(commands)].filter((name) => name !== '');
  return names.length === 0 ? undefined : names.slice(0, COMMANDS_MAX).join(', ');
}

/** Pieces overlap by this much, so that a keyword cut by the end of a piece is found. */
const OVERLAP = 256;

/** Records a text that arrives in pieces and is too long to be held: all of it is hashed, its beginning is kept. */
export class StreamedRecord {
  readonly #hash = createHash('sha256');
  readonly #whitespace = new LeadingWhitespace();
  #kept = '';
  #end = '';
  #holdsPassword = false;
  #holdsSecret = false;

  /** @param text as Latin-1 */
  add(text: string): void {
    this.#hash.update(text, 'latin1');
    const seen = this.#end + text;
    if (!this.#holdsPassword && mayHoldSecret(seen)) {
      this.#holdsSecret = true;
      this.#holdsPassword = mayHoldPassword(seen);
    }
    this.#end = seen.slice(-OVERLAP);
    if (this.#kept.length >= REDACTED_CHARACTERS_MAX) return;
    const code = this.#whitespace.codeStart(text);
    // A copy, so that the whole piece is not kept in memory.
    if (code >= 0)
      this.#kept += Buffer.from(text.slice(code, code + REDACTED_CHARACTERS_MAX - this.#kept.length), 'latin1').toString('latin1');
  }

  /** The record of the text added so far. */
  get recorded(): RecordedText {
    const beginning = Buffer.from(this.#kept, 'latin1').toString('utf8');
    if (this.#holdsSecret) return recordBeginning(beginning, this.#holdsPassword);
    return { sql: beginning.slice(0, SQL_CHARACTERS_MAX), sqlHash: this.#hash.copy().digest('hex') };
  }
}

function sha256(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}
