import { Code } from '../../../syntax/characters.ts';
import { type Lexer, Token } from '../../../syntax/scanner.ts';
import { namesDatabase, namesSchema } from '../names/catalog-columns.ts';
import { CAST, CONFIGURED, FORMAT, isTextType, type Role, roleOfType, SCHEMAS } from '../names/roles.ts';
import type { Scope, Span } from '../names/scope.ts';

/** What the string at which the scope stands means for a place; undefined for data, which is most strings. */
export function roleOfLiteral(scope: Scope): Role | undefined {
  return roleByWhatPrecedes(scope) ?? roleByCall(scope) ?? roleByCast(scope);
}

function roleByWhatPrecedes(scope: Scope): Role | undefined {
  const { last, second, third } = scope;
  if (scope.dynamic >= 0 && isExecuted(scope)) return 'sql';
  if (namesSchema(scope)) return 'name';
  if (namesDatabase(scope)) return 'database';
  if (last.kind !== Token.Word && last.kind !== Token.QuotedIdentifier) return undefined;
  if (scope.isWord(last, 'as')) return isCopyOption(scope) ? undefined : bodyRole(scope);
  if (scope.isWord(last, 'do') || (scope.isWord(second, 'language') && scope.isWord(third, 'do'))) return bodyRole(scope);
  return roleOfType(scope.nameOf(last));
}

/** `DELIMITER AS ','`, as COPY was written before 9.0. */
function isCopyOption(scope: Scope): boolean {
  return scope.isOneOf(scope.second, ['delimiter', 'delimiters', 'null', 'quote', 'escape']);
}

/** The body of a function or of DO; what is not SQL or PL/pgSQL cannot be read here. */
function bodyRole(scope: Scope): Role | undefined {
  const language = scope.language();
  return language === '' || language === 'sql' || language === 'plpgsql' ? 'sql' : undefined;
}

/** So deep may a literal stand in parentheses that only group. */
const GROUPS_MAX = 8;

/** A piece of `EXECUTE 'SELECT …' || x` or `EXECUTE format('SELECT …', x)`; arguments of other functions are data. */
function isExecuted(scope: Scope): boolean {
  if (scope.calls.length - scope.dynamic > GROUPS_MAX) return false;
  return scope.calls.slice(scope.dynamic).every((call) => call.grouping || (call.roles === FORMAT && call.argument === 0));
}

/** `nextval('public.s')`, also with parentheses that only group: `nextval(('public.s'::text)::regclass)`. */
function roleByCall(scope: Scope): Role | undefined {
  const { calls } = scope;
  const highest = Math.max(calls.length - 1 - GROUPS_MAX, 0);
  let level = calls.length - 1;
  while (level > highest && calls[level]?.grouping) level--;
  const call = calls[level];
  if (call === undefined) return undefined;
  if (call.roles === SCHEMAS) return 'name';
  if (call.roles === CONFIGURED) return call.argument === 0 && scope.nextCode() === Code.Comma ? 'sql' : undefined;
  return call.roles?.[call.argument];
}

/** `'public.users'::regclass`, `CAST('public.users' AS regclass)`. */
function roleByCast(scope: Scope): Role | undefined {
  const next = scope.nextCode();
  let level = scope.calls.length - 1;
  if (next !== Code.Colon && next !== Code.Close && scope.calls[level]?.roles !== CAST) return undefined;
  const ahead = scope.ahead();
  for (let tokens = 0; tokens < 2 * GROUPS_MAX && ahead.next() !== Token.End; tokens++) {
    if (scope.isMark(ahead, Code.Close) && scope.calls[level]?.grouping) level--;
    else if (isCast(ahead.text, ahead) || (scope.isWord(ahead, 'as') && scope.calls[level]?.roles === CAST)) {
      const type = typeAt(ahead, scope);
      if (!isTextType(type)) return roleOfType(type);
    } else break;
  }
  return undefined;
}

/** Whether the token is `::`. */
export function isCast(text: string, { kind, start }: Span): boolean {
  return kind === Token.Operator && text.startsWith('::', start);
}

/** The type behind the lexer's token, without `pg_catalog.`. */
function typeAt(ahead: Lexer, scope: Scope): string {
  ahead.next();
  const type = scope.nameOf(ahead);
  if (type !== 'pg_catalog') return type;
  ahead.next();
  ahead.next();
  return scope.nameOf(ahead);
}
