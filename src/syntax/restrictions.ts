import { ServiceError } from '../errors.ts';
import { BEGINNING_MAX_CHARACTERS, beginningOf, leadingWords, startOfStatement } from './leading-words.ts';
import { isString, Lexer, Token } from './scanner.ts';

/** What a statement is part of: a call of its own, or a transaction that Postern opens and ends. */
export type StatementContext = 'single' | 'transaction';

const TRANSACTION_CONTROL = new Set(['BEGIN', 'START', 'COMMIT', 'END', 'ROLLBACK', 'ABORT']);
const SAVEPOINTS = new Set(['SAVEPOINT', 'RELEASE']);

/**
 * Refuses what cannot work over HTTP, with a reason that helps. Postgres decides what is allowed; these are the
 * statements that it would allow and that make no sense here, told by their first words.
 * @throws ServiceError `invalid_request` or `unsupported_statement`
 */
export function checkStatement(sql: string, context: StatementContext): void {
  checkText(sql);
  const words = leadingWords(sql, 3);
  const command = words[0] ?? '';
  if (controlsTransaction(sql, words, context)) throw transactionControl(words, context);
  if (SAVEPOINTS.has(command) && context === 'single') throw transactionControl(words, context);
  if (command === 'LISTEN' || command === 'UNLISTEN') {
    throw unsupported(`${command} needs a session that stays open`, 'Connect over the PostgreSQL protocol to receive notifications.');
  }
  if (command === 'COPY' && copiesToClient(sql)) {
    throw unsupported(
      'COPY FROM STDIN and COPY TO STDOUT need a PostgreSQL connection',
      'Connect over the PostgreSQL protocol, or use INSERT and SELECT.',
    );
  }
}

/** What tells a statement's kind has to have room before the end of what is looked at. */
const FIRST_WORDS_CHARACTERS = 1_024;
const BLANKS = `sql begins with more than ${BEGINNING_MAX_CHARACTERS - FIRST_WORDS_CHARACTERS} characters that say nothing`;

/** @throws ServiceError `invalid_request` for text that no statement can be made of */
export function checkText(sql: string): void {
  if (sql.includes('\0')) throw new ServiceError('invalid_request', 'sql contains a NUL character', { sqlstate: '22021' });
  const start = startOfStatement(sql);
  if (start > BEGINNING_MAX_CHARACTERS - FIRST_WORDS_CHARACTERS && start < sql.length) throw new ServiceError('invalid_request', BLANKS);
  if (start === sql.length) throw new ServiceError('invalid_request', 'sql contains no statement', { sqlstate: '42601' });
}

const COMMITS_ITSELF = new Set(['CALL', 'CLUSTER', 'DO', 'REINDEX', 'VACUUM']);

/** Whether a statement on its own can fail when some of what it does has been committed. */
export function mayCommitInPart(sql: string): boolean {
  return COMMITS_ITSELF.has(leadingWords(sql, 1)[0] ?? '') || /\bconcurrently\b/i.test(sql);
}

/** Whether it begins or ends a transaction. `ROLLBACK TO` a savepoint does neither, but has a place only inside one. */
function controlsTransaction(sql: string, words: readonly string[], context: StatementContext): boolean {
  const [command = '', second, third] = words;
  if (command === 'PREPARE') return second === 'TRANSACTION' && third === undefined && isFollowedByString(sql);
  if (command === 'ROLLBACK' && (second === 'TO' || third === 'TO')) return context === 'single';
  return TRANSACTION_CONTROL.has(command);
}

/** `PREPARE TRANSACTION 'id'`, not a statement that was named `transaction`. */
function isFollowedByString(sql: string): boolean {
  const lexer = new Lexer(beginningOf(sql), { offset: startOfStatement(sql) });
  while (lexer.next() === Token.Word);
  return isString(lexer.kind);
}

/** Behind so much nothing is looked for; what copies to the client all the same is refused when it does. */
const COPY_MAX_CHARACTERS = 65_536;

/** STDIN or STDOUT stands right after FROM or TO, outside parentheses. */
function copiesToClient(sql: string): boolean {
  let depth = 0;
  let previous = '';
  const lexer = new Lexer(sql.slice(0, COPY_MAX_CHARACTERS));
  while (lexer.next() !== Token.End) {
    const text = sql.slice(lexer.start, lexer.end).toUpperCase();
    if (text === '(') depth += 1;
    else if (text === ')') depth -= 1;
    else if (depth === 0 && (previous === 'FROM' || previous === 'TO') && (text === 'STDIN' || text === 'STDOUT')) return true;
    previous = text;
  }
  return false;
}

function transactionControl(words: readonly string[], context: StatementContext): ServiceError {
  const command = words[0] === 'START' || words[0] === 'PREPARE' ? `${words[0]} TRANSACTION` : (words[0] ?? '');
  if (context === 'transaction') return unsupported(`${command} is not allowed here: the transaction begins and ends with the request`);
  return unsupported(
    `${command} needs a transaction that spans statements`,
    'Send the statements as one transaction: POST /api/transaction.',
  );
}

function unsupported(message: string, hint?: string): ServiceError {
  return new ServiceError('unsupported_statement', message, hint === undefined ? {} : { hint });
}
