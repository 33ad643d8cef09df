import { isIdentifier, Lexer, Token, type TokenKind } from '../../../../src/syntax/scanner.ts';
import { leadingKeywords } from '../../../../src/syntax/statements.ts';
import { ApiError, call, type Problem } from '../../api/client.ts';
import { rangeAtPosition } from '../../editor/error-range.ts';

export type QueryOrder = 'totalTime' | 'meanTime' | 'calls' | 'rows' | 'errors' | 'bytes';

/** What Postern has counted. Times are in ms. */
interface QueryCounts {
  /** Failed runs included. */
  readonly calls: number;
  readonly errors: number;
  readonly totalMs: number;
  readonly meanMs: number;
  readonly p99Ms: number;
  readonly maxMs: number;
  readonly rows: number;
  readonly bytes: number;
  readonly firstSeenAt: string;
  readonly lastSeenAt: string;
}

/** Of statements that differ in constants only. */
export interface QueryStatistic extends QueryCounts {
  readonly queryId: string;
  readonly sql: string;
}

/** `GET /api/insights/queries` */
export interface QueryStatistics {
  readonly statsSince: string | null;
  readonly queries: readonly QueryStatistic[];
  /** What is not told apart; null: there is none. */
  readonly others: QueryCounts | null;
}

export interface Advice {
  readonly rule: string;
  readonly severity: 'warning' | 'info';
  readonly schema: string;
  readonly table: string | null;
  /** The index, foreign key, column or sequence; null: the table itself. */
  readonly object: string | null;
  readonly message: string;
  readonly cure: string | null;
}

/** `GET /api/insights/advice` */
export interface AdviceReply {
  readonly advice: readonly Advice[];
  readonly isComplete: boolean;
}

/** The most that the API returns. */
export const QUERIES_MAX = 100;
/** Longer texts are cut. */
export const QUERY_TEXT_MAX_CHARACTERS = 8_000;

export function readQueries(orderBy: QueryOrder, signal: AbortSignal): Promise<QueryStatistics> {
  return call('GET', `api/insights/queries?orderBy=${orderBy}&limit=${QUERIES_MAX}`, { signal });
}

export function readAdvice(signal: AbortSignal): Promise<AdviceReply> {
  return call('GET', 'api/insights/advice', { signal });
}

const PLANNED = new Set(['SELECT', 'WITH', 'INSERT', 'UPDATE', 'DELETE', 'MERGE', 'VALUES', 'TABLE']);

/** Why the statement has no plan that can be shown; undefined: it has one. */
export function whyNoPlan({ sql }: QueryStatistic): string | undefined {
  if (sql.length >= QUERY_TEXT_MAX_CHARACTERS) return 'The text is cut, so it cannot be planned.';
  const [first = 'SELECT'] = leadingKeywords(sql, 1);
  return PLANNED.has(first) ? undefined : `${first} is not planned.`;
}

interface TransactionReply {
  readonly results: readonly { readonly rows: readonly (readonly string[])[] }[];
}

/** Each is one more call. */
const REPAIRS_MAX = 20;

/**
 * The generic plan of the statement, which does not depend on the values of $1, $2, …. Nothing is executed.
 * @throws ApiError also where the text without its constants means nothing: the second statement has failed then
 */
export async function explain({ sql }: QueryStatistic, signal: AbortSignal): Promise<string> {
  let text = sql;
  for (let repairs = 0; ; repairs += 1) {
    try {
      return await genericPlan(text, signal);
    } catch (error) {
      const repaired = error instanceof ApiError && repairs < REPAIRS_MAX ? repairedText(text, error.problem) : undefined;
      if (repaired === undefined) throw error;
      text = repaired;
    }
  }
}

const PREPARE = 'PREPARE console_plan AS ';

/**
 * EXPLAIN (GENERIC_PLAN) cannot be used: the API requires a value for each parameter, and PostgreSQL would plan with these values.
 */
async function genericPlan(sql: string, signal: AbortSignal): Promise<string> {
  const nulls = Array.from({ length: countParameters(sql) }, () => 'NULL');
  const statements = [
    'SET LOCAL plan_cache_mode = force_generic_plan',
    `${PREPARE}${sql}`,
    `EXPLAIN EXECUTE console_plan${nulls.length === 0 ? '' : `(${nulls.join(', ')})`}`,
    'DEALLOCATE console_plan',
  ];
  const body = { statements: statements.map((one) => ({ sql: one })), readOnly: true, rollback: true, rowMode: 'array' };
  const { results } = await call<TransactionReply>('POST', 'api/transaction', { body, signal, isSafe: true });
  return (results[2]?.rows ?? []).map(([line]) => line).join('\n');
}

/** The largest n of `$n`. */
function countParameters(sql: string): number {
  const lexer = new Lexer(sql);
  let count = 0;
  while (lexer.next() !== Token.End) {
    if (lexer.kind === Token.Parameter) count = Math.max(count, Number(sql.slice(lexer.start + 1, lexer.end)));
  }
  return count;
}

/** `syntax_error` */
const SYNTAX_ERROR = '42601';
/** `ambiguous_function`: operators, too. */
const AMBIGUOUS = '42725';
/** `indeterminate_datatype` */
const UNKNOWN_TYPE = '42P18';

interface TextToken {
  readonly kind: TokenKind;
  readonly text: string;
  readonly start: number;
  readonly end: number;
}

interface Replacement {
  readonly start: number;
  readonly end: number;
  readonly text: string;
}

/**
 * The text with something in the place that PostgreSQL complains of: where a constant was part of the grammar, what means the same with a
 * parameter, and where its type would tell which function is meant, a type.
 * @returns undefined where nothing is known that would help
 */
function repairedText(sql: string, { statementIndex, sqlstate, detail, postgres }: Problem): string | undefined {
  if (statementIndex !== 1) return undefined;
  const tokens = tokensOf(sql);
  if (sqlstate === UNKNOWN_TYPE) {
    const [name] = /\$\d+/.exec(detail) ?? [];
    return replaced(
      sql,
      tokens
        .filter((token) => token.kind === Token.Parameter && token.text === name)
        .slice(0, 1)
        .map(castTo('text')),
    );
  }
  if (postgres?.position === undefined) return undefined;
  const { from } = rangeAtPosition(`${PREPARE}${sql}`, postgres.position);
  const at = tokens.findIndex(({ start }) => start === from - PREPARE.length);
  if (sqlstate === SYNTAX_ERROR) return replaced(sql, constantOfGrammar(tokens, at));
  return sqlstate === AMBIGUOUS ? replaced(sql, argumentsAt(tokens, at).map(castTo('integer'))) : undefined;
}

function tokensOf(sql: string): readonly TextToken[] {
  const tokens: TextToken[] = [];
  const lexer = new Lexer(sql);
  while (lexer.next() !== Token.End) {
    const { kind, start, end } = lexer;
    tokens.push({ kind, start, end, text: sql.slice(start, end) });
  }
  return tokens;
}

function replaced(sql: string, replacements: readonly Replacement[]): string | undefined {
  if (replacements.length === 0) return undefined;
  return replacements.reduceRight((text, { start, end, text: by }) => text.slice(0, start) + by + text.slice(end), sql);
}

function castTo(type: string) {
  return ({ start, end, text }: TextToken): Replacement => ({ start, end, text: `${text}::${type}` });
}

/** Behind `interval $1`. */
const INTERVAL_FIELD = /^(?:year|month|day|hour|minute|second|to)$/i;

/** What takes the place of `type $1`, of a length or precision, and of the field in `extract($1 from …)`. */
function constantOfGrammar(tokens: readonly TextToken[], at: number): readonly Replacement[] {
  const [token, before, earlier] = [tokens[at], tokens[at - 1], tokens[at - 2]];
  if (token?.kind !== Token.Parameter) return withoutModifier(tokens, at);
  if (before?.text === '(') {
    if (earlier?.text.toLowerCase() === 'extract') return [{ ...token, text: "'epoch'" }];
    return withoutModifier(tokens, at - 2);
  }
  if (before === undefined || !isIdentifier(before.kind)) return [];
  const first = typeStart(tokens, at - 1);
  let last = at;
  if (before.text.toLowerCase() === 'interval') while (INTERVAL_FIELD.test(tokens[last + 1]?.text ?? '')) last += 1;
  const words = [...tokens.slice(first, at), ...tokens.slice(at + 1, last + 1)].map(({ text }) => text).join(' ');
  return [{ start: tokens[first]?.start ?? 0, end: tokens[last]?.end ?? 0, text: `CAST(${token.text} AS ${words})` }];
}

/** Where the type's name begins that ends there: `timestamp with time zone`, `double precision`, `public.mood`. */
function typeStart(tokens: readonly TextToken[], end: number): number {
  const last = tokens[end]?.text.toLowerCase();
  if (last === 'zone') return end - 3;
  if (last === 'precision' || last === 'varying') return end - 1;
  let first = end;
  while (tokens[first - 1]?.text === '.') first -= 2;
  return first;
}

/** Without the length or precision behind a type's name. */
function withoutModifier(tokens: readonly TextToken[], at: number): readonly Replacement[] {
  const open = afterName(tokens, at);
  if (open === undefined) return [];
  const close = tokens.findIndex(({ text }, index) => index > open && text === ')');
  const isModifier = close > open && tokens.slice(open + 1, close).every(({ kind, text }) => kind === Token.Parameter || text === ',');
  return isModifier ? [{ start: tokens[open]?.start ?? 0, end: tokens[close]?.end ?? 0, text: '' }] : [];
}

/** The place of the parenthesis behind a name. */
function afterName(tokens: readonly TextToken[], at: number): number | undefined {
  let place = at + 1;
  while (tokens[place]?.text === '.') place += 2;
  return at >= 0 && tokens[place]?.text === '(' ? place : undefined;
}

/** The parameters that are whole arguments of the function, or operands of the operator. Texts need no type: they had none. */
function argumentsAt(tokens: readonly TextToken[], at: number): readonly TextToken[] {
  const isWhole = (index: number) => tokens[index]?.kind === Token.Parameter && tokens[index + 1]?.text !== '::';
  const open = afterName(tokens, at);
  const places = open === undefined ? [at - 1, at + 1] : argumentPlaces(tokens, open);
  return places.filter(isWhole).flatMap((index) => tokens[index] ?? []);
}

function argumentPlaces(tokens: readonly TextToken[], open: number): readonly number[] {
  const places: number[] = [];
  for (let index = open + 1, depth = 1; depth > 0 && index < tokens.length; index += 1) {
    const text = tokens[index]?.text ?? '';
    if (text === '(' || text === '[') depth += 1;
    if (text === ')' || text === ']') depth -= 1;
    const isAlone = /^[(,]$/.test(tokens[index - 1]?.text ?? '') && /^[),]$/.test(tokens[index + 1]?.text ?? '');
    if (depth === 1 && isAlone) places.push(index);
  }
  return places;
}

/** What a rule is about. */
interface RuleText {
  readonly title: string;
  /** Why it matters, in one sentence. */
  readonly why: string;
  /** Each message says the same as `why`. */
  readonly isAlike?: boolean;
  /** What to know before the cure is applied. */
  readonly caution?: string;
}

const REWRITES = 'The statement rewrites the table, and locks it meanwhile.';

const RULES: Readonly<Record<string, RuleText>> = {
  invalid_index: {
    title: 'Invalid indexes',
    why: 'Queries do not use such an index, and writes go on to maintain it. Its concurrent build has failed, or is still running.',
    isAlike: true,
  },
  integer_key_near_end: {
    title: 'Keys that run out of numbers',
    why: 'When the last number of the type is used up, every INSERT fails.',
    caution: REWRITES,
  },
  sequence_near_end: {
    title: 'Sequences that run out of numbers',
    why: 'When the last number is used up, whatever asks for the next one fails.',
  },
  definer_without_search_path: {
    title: 'Definer routines without a search path',
    why: 'Such a routine runs with the rights of its owner. Its caller decides with the search path, or with temporary objects, what its names mean.',
    caution: 'Names that it uses of other schemas than its own and public have to be qualified then, or added to the path.',
  },
  no_primary_key: {
    title: 'Tables without a primary key',
    why: 'Rows cannot be told apart, and logical replication cannot update them.',
    isAlike: true,
    caution: REWRITES,
  },
  foreign_key_without_index: {
    title: 'Foreign keys without an index',
    why: 'Deleting a row that is referred to has to look through the whole table that refers to it.',
  },
  duplicate_index: {
    title: 'Duplicate indexes',
    why: 'Two indexes that do the same cost twice the space, and twice the time with each write.',
  },
  large_sequential_scans: {
    title: 'Large sequential scans',
    why: 'A large table that is read from its beginning again and again often lacks an index.',
  },
  never_analyzed: {
    title: 'Tables that were never analyzed',
    why: 'Without statistics of its values the planner guesses, and may choose a slow plan.',
  },
  unused_index: { title: 'Unused indexes', why: 'An index that no query uses costs space, and time with each write.' },
  no_row_security_with_read_keys: {
    title: 'Tables that read keys see whole',
    why: 'There are read keys, and without row security they see all rows of these tables.',
    isAlike: true,
    caution: 'With row security, read keys see no row at all until a policy lets them.',
  },
  timestamp_without_time_zone: {
    title: 'Timestamps without a time zone',
    why: 'Which instant such a timestamp means depends on who wrote it.',
    isAlike: true,
    caution: `${REWRITES} It takes the values as UTC.`,
  },
  json_instead_of_jsonb: {
    title: 'json instead of jsonb',
    why: 'json is parsed each time it is read, and no index finds what is in it.',
    isAlike: true,
    caution: `${REWRITES} jsonb keeps no white space, and no order of keys.`,
  },
};

export function textOfRule(rule: string): RuleText {
  return RULES[rule] ?? { title: rule.replaceAll('_', ' '), why: '' };
}
