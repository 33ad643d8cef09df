import { Code } from '../tokens/characters.ts';
import { type Lexer, Token } from '../tokens/scanner.ts';
import { namesDatabase, namesSchema } from './catalog-comparisons.ts';
import { CAST, CONFIGURED, FORMAT, isTextType, type LiteralMeaning, meaningOfType, SCHEMAS } from './functions-taking-names.ts';
import type { Scope, Span } from './scope.ts';

/** The meaning of the current string; undefined for data, as in most strings. */
export function meaningOfLiteral(scope: Scope): LiteralMeaning | undefined {
  return meaningByWhatPrecedes(scope) ?? meaningByCall(scope) ?? meaningByCast(scope);
}

function meaningByWhatPrecedes(scope: Scope): LiteralMeaning | undefined {
  const { last, second, third } = scope;
  if (scope.executeDepth >= 0 && isExecuted(scope)) return 'sql';
  if (namesSchema(scope)) return 'name';
  if (namesDatabase(scope)) return 'database';
  if (last.kind !== Token.Word && last.kind !== Token.QuotedIdentifier) return undefined;
  if (scope.isWord(last, 'as')) return isCopyOption(scope) ? undefined : meaningOfBody(scope);
  if (scope.isWord(last, 'do') || (scope.isWord(second, 'language') && scope.isWord(third, 'do'))) return meaningOfBody(scope);
  return meaningOfType(scope.nameOf(last));
}

/** `DELIMITER AS ','`, as COPY was written before 9.0. */
function isCopyOption(scope: Scope): boolean {
  return scope.isOneOf(scope.second, ['delimiter', 'delimiters', 'null', 'quote', 'escape']);
}

/** The body of a function or of DO. It counts as data if its language is not SQL or PL/pgSQL. */
function meaningOfBody(scope: Scope): LiteralMeaning | undefined {
  const language = scope.language();
  return language === '' || language === 'sql' || language === 'plpgsql' ? 'sql' : undefined;
}

/** A literal inside more grouping parentheses than this counts as data. */
const GROUPS_MAX = 8;

/** Whether the string is part of `EXECUTE 'SELECT …' || x` or `EXECUTE format('SELECT …', x)`. Arguments of other functions are data. */
function isExecuted(scope: Scope): boolean {
  if (scope.calls.length - scope.executeDepth > GROUPS_MAX) return false;
  return scope.calls.slice(scope.executeDepth).every((call) => call.grouping || (call.meanings === FORMAT && call.argument === 0));
}

/** `nextval('public.s')`, also with parentheses that only group: `nextval(('public.s'::text)::regclass)`. */
function meaningByCall(scope: Scope): LiteralMeaning | undefined {
  const { calls } = scope;
  const highest = Math.max(calls.length - 1 - GROUPS_MAX, 0);
  let level = calls.length - 1;
  while (level > highest && calls[level]?.grouping) level--;
  const call = calls[level];
  if (call === undefined) return undefined;
  if (call.meanings === SCHEMAS) return 'name';
  if (call.meanings === CONFIGURED) return call.argument === 0 && scope.nextCode() === Code.Comma ? 'sql' : undefined;
  return call.meanings?.[call.argument];
}

/** `'public.users'::regclass`, `CAST('public.users' AS regclass)`. */
function meaningByCast(scope: Scope): LiteralMeaning | undefined {
  const next = scope.nextCode();
  let level = scope.calls.length - 1;
  if (next !== Code.Colon && next !== Code.Close && scope.calls[level]?.meanings !== CAST) return undefined;
  const ahead = scope.ahead();
  for (let tokens = 0; tokens < 2 * GROUPS_MAX && ahead.next() !== Token.End; tokens++) {
    if (scope.isPunctuation(ahead, Code.Close) && scope.calls[level]?.grouping) level--;
    else if (isCast(ahead.text, ahead) || (scope.isWord(ahead, 'as') && scope.calls[level]?.meanings === CAST)) {
      const type = typeAt(ahead, scope);
      if (!isTextType(type)) return meaningOfType(type);
    } else break;
  }
  return undefined;
}

/** Whether the token is `::`. */
export function isCast(text: string, { kind, start }: Span): boolean {
  return kind === Token.Operator && text.startsWith('::', start);
}

/** The type after the lexer's token, without `pg_catalog.`. */
function typeAt(ahead: Lexer, scope: Scope): string {
  ahead.next();
  const type = scope.nameOf(ahead);
  if (type !== 'pg_catalog') return type;
  ahead.next();
  ahead.next();
  return scope.nameOf(ahead);
}
