import { redactSecrets } from '../../syntax/redaction.ts';
import type { SentStatement } from './listed-session.ts';

const SHOWN_CHARACTERS_MAX = 1_000;
/** Longer texts are not searched for secrets as a whole. */
export const WHOLE_CHARACTERS_MAX = 8_192;
/** Masking makes a text shorter. */
const BEGINNING_CHARACTERS = 2_048;

/** The first half of a surrogate pair that has been cut. */
const HALF_CHARACTER = /[\ud800-\udbff]$/;

/**
 * The beginning of a statement, with secrets masked as in the audit log. Whether a literal is a password may depend on any part of
 * the text. So all literals of a long text are masked.
 */
export function shownSql({ text, isWhole }: Pick<SentStatement, 'text' | 'isWhole'>): string {
  const isShort = isWhole && text.length <= WHOLE_CHARACTERS_MAX;
  const redacted = isShort ? redactSecrets(text) : redactSecrets(text.slice(0, BEGINNING_CHARACTERS), true);
  return redacted.trimStart().slice(0, SHOWN_CHARACTERS_MAX).replace(HALF_CHARACTER, '');
}
