import type { ErrorFields } from '../../src/protocol/backend.ts';
import { Lexer, Token } from '../../src/syntax/scanner.ts';

/** Only the beginning of a statement is searched for parameters of another style. */
const SEARCHED_MAX_CHARACTERS = 16_384;

const [SYNTAX_ERROR, INSUFFICIENT_PRIVILEGE, NOT_SUPPORTED, UNDEFINED_FUNCTION, UNDEFINED_OBJECT] = [
  '42601',
  '42501',
  '0A000',
  '42883',
  '42704',
];

/** What to do about an error of Postgres, for callers who are used to another database, to psql, or to a server of their own. */
export function sqlHint({ code, message, hint }: ErrorFields, sql = ''): string | undefined {
  switch (code) {
    case SYNTAX_ERROR:
      return hintOfCommand(sql) ?? (hasOtherParameters(sql) ? PARAMETERS : hint);
    case INSUFFICIENT_PRIVILEGE:
      if (/^permission denied to (?:create|alter|drop|grant|rename) role/.test(message)) return ROLES;
      return message.startsWith('permission denied to create extension') ? TRUSTED : hint;
    case NOT_SUPPORTED:
      return /^extension ".*" is not available/.test(message) ? AVAILABLE : hint;
    case UNDEFINED_FUNCTION:
      if (message.startsWith('operator') && hasOtherParameters(sql)) return PARAMETERS;
      return hintOfExtension(/^function (?:\w+\.)?(\w+)\(/.exec(message)?.[1]) ?? hint;
    case UNDEFINED_OBJECT:
      return hintOfExtension(/^type "(?:\w+\.)?(\w+)"/.exec(message)?.[1]) ?? hint;
    default:
      return hint;
  }
}

const PARAMETERS = 'Parameters are written $1, $2, … in the SQL; their values are sent in params, in that order.';
const ROLES =
  'Roles cannot be created. Further credentials are keys: POST /api/keys makes one, also one that can only read. GRANT and roles are not needed for that.';
const AVAILABLE = 'This server has not got it. What it has: select name, comment from pg_available_extensions';
const TRUSTED = 'Only trusted extensions can be created: select name from pg_available_extension_versions where trusted';

/** The commands of psql that begin with a backslash never reach a server. */
function hintOfCommand(sql: string): string | undefined {
  const [command, name] = /^\s*(\\\w*\+?)(?:\s+"?(\w+))?/.exec(sql.slice(0, 1_000))?.slice(1) ?? [];
  if (command === undefined) return undefined;
  const instead =
    command.startsWith('\\d') && name !== undefined
      ? `select column_name, data_type, is_nullable from information_schema.columns where table_name = '${name}'`
      : 'select table_name, table_type from information_schema.tables where table_schema = current_schema()';
  return `${command} is a command of psql, not SQL. ${command.startsWith('\\d') ? 'Instead' : 'For a list of tables'}: ${instead}`;
}

/** Whether it has a `?`, a `:name` or a `%s` outside of strings and comments. */
function hasOtherParameters(sql: string): boolean {
  if (!/[?:%]/.test(sql)) return false;
  const lexer = new Lexer(sql.slice(0, SEARCHED_MAX_CHARACTERS));
  let mark = { text: '', end: -1 };
  while (lexer.next() !== Token.End) {
    const text = lexer.text.slice(lexer.start, lexer.end);
    const isBehindMark = lexer.kind === Token.Word && lexer.start === mark.end;
    if (isBehindMark && (mark.text === ':' || (mark.text === '%' && text === 's'))) return true;
    if (lexer.kind !== Token.Operator) continue;
    if (text.endsWith('?')) return true;
    mark = { text: text.slice(-1) === '%' ? '%' : text, end: lexer.end };
  }
  return false;
}

/** The extensions of functions and types that are often expected to be there. */
const EXTENSION_OF: ReadonlyMap<string, string> = new Map(
  Object.entries({
    'uuid-ossp': ['uuid_generate_v1', 'uuid_generate_v1mc', 'uuid_generate_v3', 'uuid_generate_v4', 'uuid_generate_v5'],
    pgcrypto: ['crypt', 'gen_salt', 'digest', 'hmac', 'gen_random_bytes', 'pgp_sym_encrypt', 'pgp_sym_decrypt'],
    pg_trgm: ['similarity', 'word_similarity', 'show_trgm'],
    unaccent: ['unaccent'],
    fuzzystrmatch: ['levenshtein', 'soundex', 'metaphone', 'dmetaphone'],
    tablefunc: ['crosstab', 'connectby', 'normal_rand'],
    citext: ['citext'],
    hstore: ['hstore'],
    ltree: ['ltree', 'lquery'],
    cube: ['cube'],
    postgis: ['geometry', 'geography', 'st_makepoint', 'st_distance', 'st_dwithin', 'st_geomfromtext'],
    vector: ['vector', 'halfvec', 'cosine_distance', 'l2_distance'],
  }).flatMap(([extension, names]) => names.map((name) => [name, extension] as const)),
);

function hintOfExtension(name = ''): string | undefined {
  const extension = EXTENSION_OF.get(name);
  if (extension === undefined) return undefined;
  const other = name === 'uuid_generate_v4' ? ' gen_random_uuid() needs none.' : '';
  return `It is in the extension "${extension}": create extension if not exists "${extension}".${other} What this server has: select name from pg_available_extensions`;
}
