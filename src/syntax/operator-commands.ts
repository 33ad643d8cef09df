import { ServiceError } from '../errors.ts';
import { contentOf, identifierText, isIdentifier, isString, Lexer, lowerCase, Token } from './scanner.ts';

/** What an operator says to the console. Names are in lower case, unless they were quoted. */
export type OperatorCommand =
  | { readonly name: 'show'; readonly what: string; readonly options: TableOptions }
  | { readonly name: 'select'; readonly what: 'one' | 'version' }
  /** Undefined: of all organizations. */
  | { readonly name: OrganizationVerb; readonly organization: string | undefined }
  /** @see Sessions.idOf */
  | { readonly name: 'kill_client'; readonly number: number; readonly sessionId?: string }
  | { readonly name: 'reload' }
  | { readonly name: 'set'; readonly setting: string; readonly value: string }
  | { readonly name: 'begin' | 'commit' | 'rollback' };

export type OrganizationVerb = (typeof ORGANIZATION_VERBS)[number];

/** Which rows of a table are shown, and how. */
export interface TableOptions {
  readonly like?: string;
  readonly orderBy?: { readonly column: string; readonly isDescending: boolean };
  readonly limit?: number;
}

export const OPERATOR_HINT = 'SHOW HELP lists the commands.';

const ORGANIZATION_VERBS = ['pause', 'resume', 'reconnect', 'disable', 'enable', 'kill'] as const;
/** PgBouncer would do these to all databases only where it says so. */
const WANT_ORGANIZATION: ReadonlySet<string> = new Set<OrganizationVerb>(['disable', 'enable', 'kill']);
const LIMIT_MAX = 1_000_000;
const NUMBER_MAX = 2 ** 31 - 1;
const SESSION_ID = /^ses_[0-9a-f]{8}([0-9a-f]{8})$/;
/** What begins and ends transactions, with the words that may follow. */
const TRANSACTION_WORDS: ReadonlySet<string> = new Set([
  'work',
  'transaction',
  'isolation',
  'level',
  'read',
  'only',
  'write',
  'committed',
  ',',
]);
const TRANSACTIONS: ReadonlyMap<string, 'begin' | 'commit' | 'rollback'> = new Map([
  ['begin', 'begin'],
  ['start', 'begin'],
  ['commit', 'commit'],
  ['end', 'commit'],
  ['rollback', 'rollback'],
  ['abort', 'rollback'],
]);

/**
 * Reads all commands of a text. Comments and empty statements are none.
 * @throws ServiceError 42601 (syntax), 22023 (a number out of range), 0A000 (COPY)
 */
export function parseOperatorCommands(sql: string): OperatorCommand[] {
  const words = new Words(sql);
  const commands: OperatorCommand[] = [];
  while (!words.isAtEnd) {
    if (words.take(';')) continue;
    commands.push(parseCommand(words));
    if (!words.isAtEnd && !words.take(';')) throw words.error();
  }
  return commands;
}

function parseCommand(words: Words): OperatorCommand {
  const verb = words.word();
  const transaction = TRANSACTIONS.get(verb);
  if (transaction !== undefined) return parseTransaction(words, transaction);
  const organizationVerb = ORGANIZATION_VERBS.find((name) => name === verb);
  if (organizationVerb !== undefined) return parseOrganizationCommand(words, organizationVerb);
  switch (verb) {
    case 'show':
      return { name: 'show', what: showable(words), options: parseTableOptions(words) };
    case 'select':
      return parseSelect(words);
    case 'kill_client':
      return { name: 'kill_client', ...parseClient(words) };
    case 'reload':
      return { name: 'reload' };
    case 'set':
      return parseSet(words);
    case 'copy':
      throw new ServiceError('unsupported_statement', 'COPY is not supported by the console', { hint: OPERATOR_HINT });
    default:
      throw words.error(verb);
  }
}

function showable(words: Words): string {
  const what = words.word();
  // As drivers ask for it.
  if (what !== 'transaction') return what;
  words.expect('isolation');
  words.expect('level');
  return 'transaction_isolation';
}

function parseTableOptions(words: Words): TableOptions {
  const like = words.take('like') ? words.string() : undefined;
  let orderBy: TableOptions['orderBy'];
  if (words.take('order')) {
    words.expect('by');
    const column = words.word();
    orderBy = { column, isDescending: words.take('desc') };
    if (!orderBy.isDescending) words.take('asc');
  }
  const limit = words.take('limit') ? words.number('LIMIT', 0, LIMIT_MAX) : undefined;
  return {
    ...(like === undefined ? {} : { like }),
    ...(orderBy === undefined ? {} : { orderBy }),
    ...(limit === undefined ? {} : { limit }),
  };
}

function parseSelect(words: Words): OperatorCommand {
  if (words.take('1')) return { name: 'select', what: 'one' };
  if (words.take('pg_catalog')) words.expect('.');
  words.expect('version');
  words.expect('(');
  words.expect(')');
  return { name: 'select', what: 'version' };
}

function parseOrganizationCommand(words: Words, name: OrganizationVerb): OperatorCommand {
  if (!words.isAtStatementEnd) return { name, organization: words.name() };
  if (!WANT_ORGANIZATION.has(name)) return { name, organization: undefined };
  throw syntaxError(`${name.toUpperCase()} needs the id of an organization`);
}

function parseClient(words: Words): { readonly number: number; readonly sessionId?: string } {
  if (words.isNumber) return { number: words.number('the number of a client', 1, NUMBER_MAX) };
  const sessionId = words.name();
  const [, number] = SESSION_ID.exec(sessionId) ?? [];
  if (number === undefined) throw syntaxError('KILL_CLIENT needs the id or the ptr of a client, as SHOW CLIENTS has it');
  return { number: Number.parseInt(number, 16), sessionId };
}

function parseSet(words: Words): OperatorCommand {
  if (words.take('session')) words.take('characteristics');
  let setting = words.word();
  // SET NAMES 'utf8' and SET TIME ZONE 'UTC' are SQL's.
  if (setting === 'names') return { name: 'set', setting: 'client_encoding', value: words.value() };
  if (setting === 'time' && words.take('zone')) return { name: 'set', setting: 'timezone', value: words.value() };
  while (words.take('.')) setting += `.${words.word()}`;
  if (!words.take('=')) words.expect('to');
  const values = [words.value()];
  while (words.take(',')) values.push(words.value());
  return { name: 'set', setting, value: values.join(', ') };
}

function parseTransaction(words: Words, name: 'begin' | 'commit' | 'rollback'): OperatorCommand {
  while (!words.isAtStatementEnd) if (!TRANSACTION_WORDS.has(words.word())) throw words.error();
  return { name };
}

function syntaxError(message: string): ServiceError {
  return new ServiceError('invalid_request', message, { sqlstate: '42601', hint: OPERATOR_HINT });
}

/** The tokens of a text, one after the other. */
class Words {
  readonly #lexer: Lexer;

  constructor(sql: string) {
    this.#lexer = new Lexer(sql);
    this.#lexer.next();
  }

  get isAtEnd(): boolean {
    return this.#lexer.kind === Token.End;
  }

  get isAtStatementEnd(): boolean {
    return this.isAtEnd || this.#text === ';';
  }

  get isNumber(): boolean {
    return this.#lexer.kind === Token.Number;
  }

  get #text(): string {
    const { text, start, end } = this.#lexer;
    return text.slice(start, end);
  }

  /** Moves on if this is the token. */
  take(token: string): boolean {
    const { kind } = this.#lexer;
    if (isString(kind) || lowerCase(this.#text) !== token) return false;
    this.#lexer.next();
    return true;
  }

  expect(token: string): void {
    if (!this.take(token)) throw this.error();
  }

  /** A keyword or a name; any other token as it is. */
  word(): string {
    const { kind } = this.#lexer;
    if (this.isAtEnd || isString(kind)) throw this.error();
    const word = isIdentifier(kind) ? identifierText(this.#lexer) : this.#text;
    this.#lexer.next();
    return word;
  }

  /** A name, which may be written as a string. */
  name(): string {
    if (isString(this.#lexer.kind)) return this.string();
    if (!isIdentifier(this.#lexer.kind)) throw this.error();
    return this.word();
  }

  string(): string {
    if (!isString(this.#lexer.kind) || !this.#lexer.terminated) throw this.error();
    const text = contentOf(this.#lexer)?.text ?? '';
    this.#lexer.next();
    return text;
  }

  /** Of a setting. */
  value(): string {
    if (isString(this.#lexer.kind)) return this.string();
    return this.take('-') ? `-${this.word()}` : this.word();
  }

  number(what: string, min: number, max: number): number {
    if (!this.isNumber) throw this.error();
    const number = Number(this.word());
    if (Number.isInteger(number) && number >= min && number <= max) return number;
    throw new ServiceError('invalid_request', `${what} is a whole number from ${min} to ${max}`);
  }

  error(token = this.#text): ServiceError {
    return syntaxError(token === '' ? 'syntax error at end of input' : `syntax error at or near "${token.slice(0, 64)}"`);
  }
}
