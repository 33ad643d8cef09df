import { Code } from '../../syntax/characters.ts';
import { isIdentifier, type Lexer, Token } from '../../syntax/scanner.ts';
import type { Scope } from './names/scope.ts';
import { identifierText } from './tokens/content.ts';

/** Words behind which a statement can begin: in functions, and in rules (`DO ALSO NOTIFY changed`). */
const BEFORE_STATEMENTS = ['begin', 'atomic', 'then', 'else', 'loop', 'do', 'also', 'instead'];

/** Words that cannot name a channel: `CASE WHEN a THEN notify END`. */
const RESERVED = ['end', 'else', 'when', 'then', 'as', 'is', 'in', 'and', 'or', 'from', 'not', 'asc', 'desc'];

function beginsStatement(scope: Scope): boolean {
  const { last, second, declaring } = scope;
  if (declaring) return false;
  if (last.kind === Token.End || scope.isMark(last, Code.Semicolon) || scope.isOneOf(last, BEFORE_STATEMENTS)) return true;
  return scope.isMark(last, Code.Open) && scope.isOneOf(second, ['do', 'also', 'instead']);
}

/**
 * At LISTEN, UNLISTEN or NOTIFY: a lexer that stands at the channel's name, or undefined when this is no such statement
 * but a name (`SELECT notify FROM users`), or is about all channels (`UNLISTEN *`).
 */
export function channelNamed(scope: Scope): Lexer | undefined {
  if (!beginsStatement(scope)) return undefined;
  const channel = scope.ahead();
  if (!isIdentifier(channel.next()) || scope.isOneOf(channel, RESERVED)) return undefined;
  const behind = scope.ahead();
  behind.moveTo(channel.end);
  const ends = behind.next() === Token.End || [Code.Semicolon, Code.Comma, Code.Close].some((mark) => scope.isMark(behind, mark));
  return ends ? channel : undefined;
}

/** Words before SCHEMA behind which a schema's name follows. `FOREIGN` is none: it names a schema elsewhere. */
const BEFORE_SCHEMA = ['create', 'drop', 'alter', 'on', 'in', 'set', 'add', 'with', 'reindex'];

/** Whether SCHEMA, at which the scope stands, introduces names of schemas. */
export function introducesSchemas(scope: Scope): boolean {
  const { last, second } = scope;
  if (scope.isOneOf(last, BEFORE_SCHEMA) || scope.isMark(last, Code.Close)) return true;
  if (scope.isOneOf(last, ['session', 'local'])) return scope.isWord(second, 'set');
  return scope.isOneOf(second, ['extension', 'exists', 'version']);
}

/**
 * At the SCHEMA of `CREATE SCHEMA IF NOT EXISTS public [AUTHORIZATION role]`: offset behind the statement; else -1.
 * The statement has to be one that changes nothing: to create a schema, even one that exists, takes a right on the
 * database that no organization has in this placement.
 */
export function existingSchemaEnd(scope: Scope): number {
  if (!scope.isWord(scope.last, 'create')) return -1;
  const ahead = scope.ahead();
  for (const word of ['if', 'not', 'exists']) {
    ahead.next();
    if (!scope.isWord(ahead, word)) return -1;
  }
  if (!isIdentifier(ahead.next()) || identifierText(ahead) !== 'public') return -1;
  let { end } = ahead;
  ahead.next();
  if (scope.isWord(ahead, 'authorization')) {
    ahead.next();
    end = ahead.end;
    ahead.next();
  }
  return ahead.kind === Token.End || scope.isMark(ahead, Code.Semicolon) ? end : -1;
}

/** At `search_path` behind SET: offset behind the `=` or TO that follows; -1 where this is no such setting. */
export function settingEnd(scope: Scope): number {
  const set = scope.isOneOf(scope.last, ['session', 'local']) ? scope.second : scope.last;
  if (set.start !== scope.setting || !scope.isWord(set, 'set')) return -1;
  const ahead = scope.ahead();
  ahead.next();
  const assigns = scope.isWord(ahead, 'to') || (ahead.kind === Token.Operator && ahead.text.slice(ahead.start, ahead.end) === '=');
  return assigns ? ahead.end : -1;
}
