const NAME_MAX_CHARACTERS = 100;

/** Invisible characters that change how others are shown, except the joiner of emoji. */
const FORMATTING = /(?!\u200d)[\p{Cf}\p{Zl}\p{Zp}]/u;
/** The blank Braille pattern counts as a symbol. */
const VISIBLE = /[^\p{Z}\p{C}\p{M}\p{Default_Ignorable_Code_Point}\u2800]/u;

interface NameRule {
  readonly message: string;
  readonly isKept: (name: string) => boolean;
}

/** Which characters a name may have, whatever it names: two names that look the same should be the same. */
export const CHARACTER_RULES: readonly NameRule[] = [
  { message: 'must not contain control characters', isKept: (name) => !/[\p{Cc}\p{Surrogate}]/u.test(name) },
  { message: 'must not contain invisible formatting characters or line separators', isKept: (name) => !FORMATTING.test(name) },
  { message: 'must have a visible character', isKept: (name) => name === '' || FORMATTING.test(name) || VISIBLE.test(name) },
];

/** What makes a text no name of an organization; names are for people to read. */
export const NAME_RULES: readonly NameRule[] = [
  {
    message: `must have 1 to ${NAME_MAX_CHARACTERS} characters`,
    isKept: (name) => name !== '' && name.length <= 2 * NAME_MAX_CHARACTERS && [...name].length <= NAME_MAX_CHARACTERS,
  },
  ...CHARACTER_RULES,
];
