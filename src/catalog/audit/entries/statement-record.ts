import { createHash } from 'node:crypto';
import type { ObservedStatement } from '../../../observation.ts';
import { TimeSlices } from '../../../runtime/event-loop.ts';
import { LeadingBlank } from '../../../syntax/leading-blank.ts';
import { mayHoldPassword, mayHoldSecret, redactSecrets } from '../../../syntax/redaction.ts';
import type { RecordedStatement } from './entry.ts';

const SQL_CHARACTERS_MAX = 2_000;
/** Masking goes from literal to literal, and there may be millions: of what may hold a secret no more than this counts. */
const REDACTED_CHARACTERS_MAX = 65_536;
/** A longer text is looked through and hashed in parts. */
const PART_CHARACTERS = 65_536;

/** What the audit log keeps of SQL text, whichever door it came through. */
export interface RecordedText {
  /** Its beginning, from the first token on, with secrets masked. */
  readonly sql: string;
  /** SHA-256 of the whole, with secrets masked. */
  readonly sqlHash: string;
}

export function recordStatement({ sql, sqlHash, command, paramCount }: ObservedStatement): RecordedStatement {
  const text = sqlHash === undefined ? recordText(sql) : { sql, sqlHash };
  return { ...text, command: command ?? null, paramCount: paramCount ?? null };
}

/**
 * Secrets are replaced, then the whole is hashed, then it is cut. Of a long text that may hold secrets nothing but the
 * beginning is hashed: a hash of what is not masked would give short passwords away.
 */
export function recordText(sql: string): RecordedText {
  const start = Math.max(0, new LeadingBlank().endIn(sql));
  if (!mayHoldSecret(sql)) return { sql: sql.slice(start, start + SQL_CHARACTERS_MAX), sqlHash: sha256(sql) };
  return recordBeginning(sql.slice(start, start + REDACTED_CHARACTERS_MAX), mayHoldPassword(sql));
}

function recordBeginning(beginning: string, holdsPassword: boolean): RecordedText {
  const redacted = redactSecrets(beginning, holdsPassword);
  return { sql: redacted.slice(0, SQL_CHARACTERS_MAX), sqlHash: sha256(redacted) };
}

/** Whether {@link recordInParts} is better than {@link recordText}, which takes a millisecond for this many characters. */
export function isLongText(sql: string): boolean {
  return sql.length > PART_CHARACTERS;
}

/** As {@link recordText}, with pauses in which the event loop serves others. */
export async function recordInParts(sql: string): Promise<RecordedText> {
  const record = new PassingRecord();
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

/** Several texts that were sent together. */
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

/** The commands of statements that were sent together, each once. @returns undefined when there are none */
export function listCommands(commands: Iterable<string>): string | undefined {
  const names = [...new Set(commands)].filter((name) => name !== '');
  return names.length === 0 ? undefined : names.slice(0, COMMANDS_MAX).join(', ');
}

/** What has to be seen together for a secret to be found. */
const OVERLAP = 256;

/** A text that passes in pieces, too long to be held: all of it is hashed, its beginning is kept. */
export class PassingRecord {
  readonly #hash = createHash('sha256');
  readonly #blank = new LeadingBlank();
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
    const code = this.#blank.endIn(text);
    // A copy of its own: the piece need not be kept with it.
    if (code >= 0)
      this.#kept += Buffer.from(text.slice(code, code + REDACTED_CHARACTERS_MAX - this.#kept.length), 'latin1').toString('latin1');
  }

  /** As far as the text has passed. */
  get recorded(): RecordedText {
    const beginning = Buffer.from(this.#kept, 'latin1').toString('utf8');
    if (this.#holdsSecret) return recordBeginning(beginning, this.#holdsPassword);
    return { sql: beginning.slice(0, SQL_CHARACTERS_MAX), sqlHash: this.#hash.copy().digest('hex') };
  }
}

function sha256(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}
