import { Pace, Tempo } from '../src/backend/pace.ts';
import type { ServerStatement } from '../src/backend/prepared-statements.ts';
import { stringEnd } from '../src/protocol/body.ts';
import { PLAIN, traitsOf } from './statement-text.ts';

const PACES_MAX = 1_000;
const TEXT_MAX_CHARACTERS = 2_048;

/** How long the statements of an organization take, of those that may share a session's pipeline with others. */
export class Paces {
  readonly tempo = new Tempo();
  readonly #ofTexts = new Map<string, Pace | null>();
  readonly #recent: ({ readonly text: string; readonly pace: Pace | undefined } | undefined)[] = new Array(RECENT).fill(undefined);

  /** @returns undefined for what may not share */
  ofStatement(statement: ServerStatement): Pace | undefined {
    if (statement.pace === undefined) {
      const { definition } = statement;
      const text = definition.toString('latin1', 0, stringEnd(definition, 0, definition.length));
      statement.pace = mayShare(text) ? new Pace() : null;
    }
    return statement.pace ?? undefined;
  }

  /** Texts that differ in their literals only are one. @returns undefined for what may not share */
  ofText(text: string): Pace | undefined {
    if (text.length > TEXT_MAX_CHARACTERS) return undefined;
    // One request is looked up several times on its way.
    const slot = slotOf(text);
    const recent = this.#recent[slot];
    if (recent?.text === text) return recent.pace;
    const pace = this.#lookUp(text);
    this.#recent[slot] = { text, pace };
    return pace;
  }

  #lookUp(text: string): Pace | undefined {
    if (text.includes('\\') || traitsOf(text) !== PLAIN) return undefined;
    const key = text.replace(LITERAL, '$1?');
    let pace = this.#ofTexts.get(key);
    if (pace === undefined) {
      pace = mayShare(text) ? new Pace() : null;
      const [oldest] = this.#ofTexts.keys();
      if (this.#ofTexts.size >= PACES_MAX && oldest !== undefined) this.#ofTexts.delete(oldest);
      this.#ofTexts.set(key, pace);
    }
    return pace ?? undefined;
  }
}

/** Texts that differ in their literals differ at the end more often than at the beginning. */
function slotOf(text: string): number {
  let slot = text.length;
  for (let i = Math.max(0, text.length - SLOT_CHARACTERS); i < text.length; i += 1) slot = (31 * slot + text.charCodeAt(i)) % RECENT;
  return slot;
}

const RECENT = 128;
const SLOT_CHARACTERS = 8;

/** Or a name in quotes, in which no literal begins: texts that look the same without their literals are to be of the same kind. */
const LITERAL = /("[^"]*")|'[^']*'|\b\d+\b/g;

const READ = /^\s*select\b/i;
const QUOTED = /'[^']*'|"[^"]*"/g;
/** What could begin another statement or lock rows, and what we could be mistaken in. */
const NOT_PLAIN = /\$|"\s*\(|--|\/\*|;\s*\S|\b(?:into|for\s+(?:no\s+key\s+)?(?:update|share)|for\s+key\s+share)\b/i;
const CALL = /([\w.\x80-\xff]+)\s*\(/g;
/** Words and functions that may stand before a parenthesis; none does anything but compute. */
const HARMLESS = new Set(
  `select from where and or not in exists any all some as on using by having over filter within values union except intersect when then
  else case join lateral array row cast between limit offset is distinct
  count sum min max avg coalesce nullif greatest least lower upper length char_length trim btrim ltrim rtrim substring substr position
  replace left right concat concat_ws abs ceil ceiling floor round trunc mod power sqrt now date_trunc extract date_part to_char age
  array_agg string_agg json_agg jsonb_agg json_build_object jsonb_build_object jsonb_build_array bool_and bool_or every row_number rank
  dense_rank lag lead first_value last_value unnest cardinality array_length jsonb_array_elements numeric decimal varchar char timestamp
  timestamptz time interval bit`.split(/\s+/),
);

/**
 * Whether a text only reads, as far as can be told: another client's request may already be behind it in the same session,
 * and it may have to be run twice. What is overlooked, in a view say, does what it would do in any pool of sessions.
 */
function mayShare(text: string): boolean {
  if (!READ.test(text) || text.includes('\\')) return false;
  const code = text.replace(QUOTED, '""').replace(PLACEHOLDER, '');
  if (NOT_PLAIN.test(code)) return false;
  for (const [, name = ''] of code.matchAll(CALL)) if (!HARMLESS.has(name.toLowerCase())) return false;
  return true;
}

/** `$1` of the extended protocol, rather than the beginning of a dollar-quoted text. */
const PLACEHOLDER = /\$\d+(?![\w$])/g;
