const READ = /^\s*select\b/i;
const QUOTED = /'[^']*'|"[^"]*"/g;
/** What could begin another statement or lock rows, and what we could be mistaken in. */
const NOT_PLAIN = /\$|"\s*\(|--|\/\*|;\s*\S|\b(?:into|for\s+(?:no\s+key\s+)?(?:update|share)|for\s+key\s+share)\b/i;
/** `$1` of the extended protocol, rather than the beginning of a dollar-quoted text. */
const PLACEHOLDER = /(?<![\w\u0080-\uffff])\$\d+(?![\w$])/g;
/** From the beginning of a name: it is not read again from each of its letters. */
const CALL = /(?<![\w.\u0080-\uffff])([\w.\u0080-\uffff]+)\s*\(/g;
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
export function mayShare(text: string): boolean {
  if (!READ.test(text) || text.includes('\\')) return false;
  const code = text.replace(QUOTED, '""').replace(PLACEHOLDER, '');
  if (NOT_PLAIN.test(code)) return false;
  for (const [, name = ''] of code.matchAll(CALL)) if (!HARMLESS.has(name.toLowerCase())) return false;
  return true;
}
