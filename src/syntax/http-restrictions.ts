import { ServiceError } from '../errors.ts';
import { isString, Lexer, Token } from './scanner.ts';
import { BEGINNING_MAX_CHARACTERS, beginningOf, leadingKeywords, startOfStatement } from './statements.ts';

/** Whether a statement runs on its own, or in a transaction that Postern begins and ends. */
export type StatementContext = 'single' | 'transaction';

const TRANSACTION_CONTROL = new Set(['BEGIN', 'START', 'COMMIT', 'END', 'ROLLBACK', 'ABORT']);
const SAVEPOINTS = new Set(['SAVEPOINT', 'RELEASE']);

/**
 * Refuses statements that cannot work over HTTP, and says what to do instead. The first keywords decide. This is no access
 * control: PostgreSQL would allow these statements.
 * @throws ServiceError `invalid_request` or `unsupported_statement`
 */
export function checkStatement(sql: string, context: StatementContext): void {
  checkText(sql);
  const words = leadingKeywords(sql, 3);
  const command = words[0] ?? '';
  if (controlsTransaction(sql, words, context)) throw transactionControl(words, context);
  if (SAVEPOINTS.has(command) && context === 'single') throw transactionControl(words, context);
  if (command === 'LISTEN' || command === 'UNLISTEN') {
    throw unsupported(`${command} needs a session that stays open`, 'Connect over the PostgreSQL protocol to receive notifications.');
  }
  if (command === 'COPY' && copiesFromOrToClient(sql)) {
    throw unsupported(
      'COPY FROM STDIN and COPY TO STDOUT need a PostgreSQL connection',
      'Connect over the PostgreSQL protocol, or use INSERT and SELECT.',
    );
  }
}

/** The part that is read ends with at least this much of the statement, so that its first keywords are seen. */
const FIRST_KEYWORDS_CHARACTERS = 1_024;
const TOO_MUCH_WHITESPACE = `sql begins with more than ${BEGINNING_MAX_CHARACTERS - FIRST_KEYWORDS_CHARACTERS} characters that say nothing`;

/** @throws ServiceError `invalid_request` for text that contains no statement, or that PostgreSQL cannot take */
export function checkText(sql: string): void {
  if (sql.includes('\0')) throw new ServiceError('invalid_request', 'sql contains a NUL character', { sqlstate: '22021' });
  const start = startOfStatement(sql);
  if (start > BEGINNING_MAX_CHARACTERS - FIRST_KEYWORDS_CHARACTERS && start < sql.length)
    throw new ServiceError('invalid_request', TOO_MUCH_WHITESPACE);
  if (start === sql.length) throw new ServiceError('invalid_request', 'sql contains no statement', { sqlstate: '42601' });
}

const COMMITS_ITSELF = new Set(['CALL', 'CLUSTER', 'DO', 'REINDEX', 'VACUUM']);

/** Whether a statement outside a transaction block can fail after it has committed a part of its work. */
export function mayCommitInPart(sql: string): boolean {
  return COMMITS_ITSELF.has(leadingKeywords(sql, 1)[0] ?? '') || /\bconcurrently\b/i.test(sql);
}

/** Whether a statement begins or ends a transaction. `ROLLBACK TO SAVEPOINT` does neither, but works only inside a transaction. */
function controlsTransaction(sql: string, words: readonly string[], context: StatementContext): boolean {
  const [command = '', second, third] = words;
  if (command === 'PREPARE') return second === 'TRANSACTION' && third === undefined && isFollowedByString(sql);
  if (command === 'ROLLBACK' && (second === 'TO' || third === 'TO')) return context === 'single';
  return TRANSACTION_CONTROL.has(command);
}

/** Recognizes `PREPARE TRANSACTION 'id'`. Without a string, `transaction` is the name of a prepared statement. */
function isFollowedByString(sql: string): boolean {
  const lexer = new Lexer(beginningOf(sql), { offset: startOfStatement(sql) });
  while (lexer.next() === Token.Word);
  return isString(lexer.kind);
}

/** Only this much of a COPY is read. If a longer one copies to or from the client, it is refused when it runs. */
const COPY_MAX_CHARACTERS = 65_536;

/** Finds STDIN or STDOUT directly after FROM or TO, outside parentheses. */
function copiesFromOrToClient(sql: string): boolean {
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
  if (context === 'transaction') {
    return unsupported(
      `${command} is not allowed here: the transaction begins and ends with the request`,
      'The statements are one transaction already: leave BEGIN and COMMIT out.',
    );
  }
  return unsupported(
    `${command} needs a transaction that spans statements`,
    'Send the statements as one transaction: POST /api/transaction.',
  );
}

function unsupported(message: string, hint?: string): ServiceError {
  return new ServiceError('unsupported_statement', message, hint === undefined ? {} : { hint });
}
