import { quoteLiteral } from '../../../quoting/quote-literal.ts';

/** `COMMENT ON … IS …`. @param object its kind and name; undefined: the comment is taken away */
export function commentOn(object: string, comment: string | null): string {
  return `COMMENT ON ${object} IS ${comment === null ? 'NULL' : quoteLiteral(comment)};`;
}

/** Storage parameters and the like, `fillfactor=70` each, as a WITH clause takes them. */
export function withOptions(options: readonly string[]): string {
  return options.length === 0 ? '' : ` WITH (${options.map(option).join(', ')})`;
}

function option(text: string): string {
  const at = text.indexOf('=');
  const value = text.slice(at + 1);
  return `${text.slice(0, at)} = ${/^[a-z0-9_]+$/.test(value) ? value : quoteLiteral(value)}`;
}
