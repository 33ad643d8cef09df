import { contentOf } from '../tokens/quoted-content.ts';
import { isString, Lexer, Token } from '../tokens/scanner.ts';
import type { SessionTraits } from './session-traits.ts';

/**
 * What the types of dates and times read as a moment that is not always the same. Their other words (`epoch`, `infinity`, `allballs`)
 * are constant.
 * @see https://www.postgresql.org/docs/current/datatype-datetime.html#DATATYPE-DATETIME-SPECIAL-VALUES
 * @see https://github.com/postgres/postgres/blob/master/src/backend/utils/adt/datetime.c datetktbl
 */
const MOMENTS = ['now', 'today', 'tomorrow', 'yesterday'];
/**
 * One of the words. Whatever is no letter ends a word. Among the letters may stand what arrays, rows and ranges quote parts of a value
 * with, and the end of a line after which a string goes on.
 */
const MOMENT = new RegExp(`(?<![a-z])(?:${MOMENTS.map((word) => [...word].join(`["'\\\\\\s]*`)).join('|')})(?![a-z])`, 'i');
/** The end of each of the words: most texts have none, which is found out sooner. */
const END_OF_MOMENT = /o["'\\\s]*w|d["'\\\s]*a["'\\\s]*y/i;
/** A string constant may begin. */
const STRING = /'|\$\D/;
/** The letters in a string may not be those in the text: there are escapes, or comments between its parts. */
const HIDES_LETTERS = /\\|u&|--/i;
/** Of longer texts the strings are not told from the rest. */
const READ_MAX_CHARACTERS = 16_384;

/** Whether the text means the same when it is prepared again with the same settings. */
export function canBePreparedAgain(text: string): boolean {
  return !namesMoment(text);
}

/**
 * Whether a text may have a constant of which PostgreSQL makes the present moment when it prepares the statement: `'now'`, in
 * whatever quotes and in a value of whatever type. Constants of all types count, because the text does not show their types.
 */
function namesMoment(text: string): boolean {
  if (!STRING.test(text)) return false;
  const hidesLetters = HIDES_LETTERS.test(text);
  if (!hidesLetters && !isMoment(text)) return false;
  if (text.length > READ_MAX_CHARACTERS) return true;
  if (hasMoment(new Lexer(text), hidesLetters)) return true;
  // With `standard_conforming_strings` off, a backslash escapes in every string, and strings may end elsewhere.
  return text.includes('\\') && hasMoment(new Lexer(text, { standardConformingStrings: false }), true);
}

function hasMoment(lexer: Lexer, hidesLetters: boolean): boolean {
  for (let kind = lexer.next(); kind !== Token.End; kind = lexer.next()) {
    if (!isString(kind) || !(hidesLetters || isMoment(lexer.text.slice(lexer.start, lexer.end)))) continue;
    const content = contentOf(lexer)?.text;
    if (content === undefined || isMoment(content)) return true;
  }
  return false;
}

function isMoment(text: string): boolean {
  return END_OF_MOMENT.test(text) && MOMENT.test(text);
}

const QUERY = /^\s*(?:select|insert|update|delete|merge|values|with|table)\b/i;

/** Whether Postern may prepare a text that the client has not asked it to prepare. */
export function isPreparable(text: string, traits: SessionTraits): boolean {
  const { leavesState, namesPrepared, listsPrepared, mentionsPids } = traits;
  return leavesState !== 'yes' && !namesPrepared && !listsPrepared && !mentionsPids && QUERY.test(text) && canBePreparedAgain(text);
}
