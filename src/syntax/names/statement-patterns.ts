import { Code } from '../tokens/characters.ts';
import { identifierText } from '../tokens/quoted-content.ts';
import { isIdentifier, isString, type Lexer, Token } from '../tokens/scanner.ts';
import type { Scope } from './scope.ts';

/**
 * At PREPARE: the offset after `PREPARE TRANSACTION 'id'`; else -1. A prepared transaction would keep its locks when its session is gone,
 * and the server has no privilege for it.
 */
export function preparedTransactionEnd(scope: Scope): number {
  if (!beginsStatement(scope)) return -1;
  const ahead = scope.ahead();
  ahead.next();
  if (!scope.isWord(ahead, 'transaction') || !isString(ahead.next())) return -1;
  return ahead.end;
}

/** Keywords after which a statement can begin, in function bodies and in rules (`DO ALSO NOTIFY changed`). */
const BEFORE_STATEMENTS = ['begin', 'atomic', 'then', 'else', 'loop', 'do', 'also', 'instead'];

/** Keywords that cannot name a channel: in `CASE WHEN a THEN notify END`, notify is a column. */
const RESERVED = ['end', 'else', 'when', 'then', 'as', 'is', 'in', 'and', 'or', 'from', 'not', 'asc', 'desc'];

function beginsStatement(scope: Scope): boolean {
  const { last, second, declaring } = scope;
  if (declaring) return false;
  if (last.kind === Token.End || scope.isPunctuation(last, Code.Semicolon) || scope.isOneOf(last, BEFORE_STATEMENTS)) return true;
  return scope.isPunctuation(last, Code.Open) && scope.isOneOf(second, ['do', 'also', 'instead']);
}

/**
 * At LISTEN, UNLISTEN or NOTIFY: a lexer at the channel's name. Undefined if the token is an identifier
 * (`SELECT notify FROM users`), and for `UNLISTEN *`.
 */
export function channelNamed(scope: Scope): Lexer | undefined {
  if (!beginsStatement(scope)) return undefined;
  const channel = scope.ahead();
  if (!isIdentifier(channel.next()) || scope.isOneOf(channel, RESERVED)) return undefined;
  const behind = scope.ahead();
  behind.moveTo(channel.end);
  const ends = behind.next() === Token.End || [Code.Semicolon, Code.Comma, Code.Close].some((mark) => scope.isPunctuation(behind, mark));
  return ends ? channel : undefined;
}

/** Keywords before SCHEMA that mean that a schema's name follows. `FOREIGN` is not one: that schema is on another server. */
const BEFORE_SCHEMA = ['create', 'drop', 'alter', 'on', 'in', 'set', 'add', 'with', 'reindex'];

/** Whether names of schemas follow the current token, which is SCHEMA. */
export function introducesSchemas(scope: Scope): boolean {
  const { last, second } = scope;
  if (scope.isOneOf(last, BEFORE_SCHEMA) || scope.isPunctuation(last, Code.Close)) return true;
  if (scope.isOneOf(last, ['session', 'local'])) return scope.isWord(second, 'set');
  return scope.isOneOf(second, ['extension', 'exists', 'version']);
}

/**
 * At the SCHEMA of `CREATE SCHEMA IF NOT EXISTS public [AUTHORIZATION role]`: the offset after the statement; else -1.
 * The statement must be replaced, because it needs the CREATE privilege on the database even if the schema exists, and no
 * organization has that in this placement.
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
  return ahead.kind === Token.End || scope.isPunctuation(ahead, Code.Semicolon) ? end : -1;
}

/** At `search_path` after SET: the offset after the `=` or TO that follows; -1 if this sets no setting. */
export function settingEnd(scope: Scope): number {
  const set = scope.isOneOf(scope.last, ['session', 'local']) ? scope.second : scope.last;
  if (set.start !== scope.setStart || !scope.isWord(set, 'set')) return -1;
  const ahead = scope.ahead();
  ahead.next();
  const assigns = scope.isWord(ahead, 'to') || (ahead.kind === Token.Operator && ahead.text.slice(ahead.start, ahead.end) === '=');
  return assigns ? ahead.end : -1;
}
