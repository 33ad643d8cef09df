import { setTimeout as delay } from 'node:timers/promises';
import { inNetworks, parseAddress } from '../src/auth/tokens.ts';
import type { RunningConfig } from '../src/config.ts';
import { ServiceError } from '../src/errors.ts';
import type { Observe, Origin } from '../src/observation.ts';
import {
  encodeBackendMessage,
  encodeDataRow,
  encodeRowDescription,
  PARSE_COMPLETE,
  type TransactionStatus,
} from '../src/protocol/backend.ts';
import { FrameScanner, frontendFrames, HEADER_BYTES } from '../src/protocol/framing.ts';
import { decodeFrontendMessage, type FrontendMessage, FrontendType } from '../src/protocol/frontend.ts';
import type { StartupMessage } from '../src/protocol/startup.ts';
import { OPERATOR } from '../src/router/authenticator.ts';
import type { CancelKeys } from '../src/router/cancel-keys.ts';
import type { Operator } from '../src/router/operator.ts';
import {
  type Cell,
  CONSOLE_SERVER_VERSION,
  type ColumnType,
  consoleVersion,
  findTable,
  readTable,
  settingChange,
  type TableData,
  type TableSources,
  tableNames,
} from '../src/router/operator-tables.ts';
import { randomSecretBytes } from '../src/runtime/bytes.ts';
import type { CountLimit } from '../src/runtime/count-limit.ts';
import { TimeSlices } from '../src/runtime/event-loop.ts';
import type { InputScheduler } from '../src/runtime/input-scheduler.ts';
import { OPERATOR_HINT, type OperatorCommand, parseOperatorCommands } from '../src/syntax/operator-commands.ts';
import type { ClientConnection, ClientReceiver } from './client-connection.ts';
import { errorResponse, protocolViolation } from './errors.ts';

interface OperatorConsoleOptions {
  /** From where operators may log in, as CIDR ranges; undefined: from this machine. */
  readonly networks: readonly string[] | undefined;
  readonly sources: TableSources;
  readonly settings: RunningConfig;
  readonly operator: Operator;
  readonly cancelKeys: CancelKeys;
  readonly inputs: InputScheduler;
  /** Sessions of operators. */
  readonly limit: CountLimit;
  readonly observe: Observe;
}

/** The database that has exactly what PgBouncer has, and the one that has more. */
const DATABASES = ['pgbouncer', 'postern'] as const;
type ConsoleDatabase = (typeof DATABASES)[number];

const LOOPBACK = ['127.0.0.0/8', '::1/128'];
/** The key under which all operators count. */
const ALL = '';

/** The console for operators at the wire door: databases in which commands like PgBouncer's run, and no SQL. */
export class OperatorConsole {
  readonly #options: OperatorConsoleOptions;
  readonly #isInside: ReturnType<typeof inNetworks>;
  readonly #sessions = new Map<ClientConnection, ConsoleSession>();
  /** The reason for ending all sessions, once the door is closing. */
  #closing: ServiceError | undefined;

  constructor(options: OperatorConsoleOptions) {
    this.#options = options;
    this.#isInside = inNetworks(options.networks ?? LOOPBACK);
  }

  /** Whether the client asks for the console, from where that may be. To anybody else there is none. */
  isFor({ remoteAddress }: ClientConnection, { parameters }: StartupMessage): boolean {
    const address = parseAddress(remoteAddress);
    const isAsked = parameters.get('user') === OPERATOR && databaseOf(parameters.get('database')) !== undefined;
    return isAsked && address !== undefined && this.#isInside(address);
  }

  /** @throws ServiceError `too_many_connections` */
  async enter(): Promise<void> {
    const { limit } = this.#options;
    if (!limit.tryEnter(ALL) && !(await limit.enter(ALL)))
      throw new ServiceError('too_many_connections', 'too many sessions of operators', { hint: `There may be ${limit.max}.` });
  }

  /** Undoes {@link enter}, for a client that is gone before its session has begun. */
  leave(): void {
    this.#options.limit.leave(ALL);
  }

  /** Begins the session of a client that has logged in and entered. */
  open(client: ClientConnection, { parameters }: StartupMessage, origin: Origin): void {
    const { observe, inputs } = this.#options;
    const database = databaseOf(parameters.get('database')) ?? 'postern';
    observe({ name: 'operator.opened', origin, message: `an operator has logged in to ${database}` });
    const session = new ConsoleSession(client, database, { ...origin, userAgent: 'console' }, this.#options);
    this.#sessions.set(client, session);
    session.start();
    client.keepAlive();
    client.attach(session, inputs.join(OPERATOR));
    if (this.#closing !== undefined) session.end(this.#closing);
  }

  /** The connection has been closed. @returns whether it was an operator's */
  forget(client: ClientConnection): boolean {
    if (!this.#sessions.delete(client)) return false;
    this.leave();
    return true;
  }

  get size(): number {
    return this.#sessions.size;
  }

  /** Ends all sessions, also new ones. */
  end(reason: ServiceError): void {
    this.#closing = reason;
    for (const session of [...this.#sessions.values()]) session.end(reason);
  }
}

function databaseOf(name: string | undefined): ConsoleDatabase | undefined {
  return DATABASES.find((database) => database === name);
}

/** Commands are short. */
const MESSAGE_MAX_BYTES = 16_384;
const WHOLE = Object.fromEntries([...'QPBCDEF'].map((type) => [type, MESSAGE_MAX_BYTES]));
const MESSAGES = frontendFrames(WHOLE, MESSAGE_MAX_BYTES);
/** A client that sends more at once is not read until these have been answered. */
const MESSAGES_MAX = 64;
const STATEMENTS_MAX = 100;
const QUIET_CHECK_MS = 100;
const SECRET_BYTES = 4;

/** What a client is told at its login, and by SHOW. */
const PARAMETERS: ReadonlyMap<string, string> = new Map([
  ['server_version', CONSOLE_SERVER_VERSION],
  ['server_encoding', 'UTF8'],
  ['client_encoding', 'UTF8'],
  ['DateStyle', 'ISO, MDY'],
  ['TimeZone', 'UTC'],
  ['standard_conforming_strings', 'on'],
  ['integer_datetimes', 'on'],
  ['default_transaction_read_only', 'off'],
  ['transaction_isolation', 'read committed'],
]);
/** What clients and drivers set at their start, with the values that change nothing here; undefined: all. */
const SETTABLE: ReadonlyMap<string, RegExp | undefined> = new Map([
  ['client_encoding', /^(utf-?8|unicode)$/i],
  ['standard_conforming_strings', /^(on|true|1|yes)$/i],
  ['datestyle', undefined],
  ['timezone', undefined],
  ['extra_float_digits', undefined],
  ['application_name', undefined],
  ['client_min_messages', undefined],
  ['intervalstyle', undefined],
  ['bytea_output', undefined],
  ['statement_timeout', undefined],
  ['lock_timeout', undefined],
  ['idle_in_transaction_session_timeout', undefined],
  ['search_path', undefined],
]);

const FAILED = '25P02';

interface Prepared {
  /** Undefined: an empty statement. */
  readonly command: OperatorCommand | undefined;
}

interface Portal extends Prepared {
  readonly formats: readonly number[];
  /** What has not been sent yet; undefined: it has not been executed. */
  rest: TableData | undefined;
}

/** The session of one operator. Its messages are answered one after the other. */
class ConsoleSession implements ClientReceiver {
  readonly #client: ClientConnection;
  readonly #database: ConsoleDatabase;
  readonly #origin: Origin;
  readonly #options: OperatorConsoleOptions;
  readonly #scanner = new FrameScanner(MESSAGES);
  readonly #queue: FrontendMessage[] = [];
  readonly #statements = new Map<string, Prepared>();
  readonly #portals = new Map<string, Portal>();
  readonly #closed = new AbortController();
  #processId = 0;
  #status: TransactionStatus = 'I';
  #isAnswering = false;
  /** After an error, messages of the extended protocol are ignored up to Sync. */
  #isSkipping = false;
  /** Aborts what is being waited for. */
  #running: AbortController | undefined;
  #drained: () => void = () => {};

  constructor(client: ClientConnection, database: ConsoleDatabase, origin: Origin, options: OperatorConsoleOptions) {
    this.#client = client;
    this.#database = database;
    this.#origin = origin;
    this.#options = options;
  }

  /** Sends what PostgreSQL sends after a login. */
  start(): void {
    const secretKey = randomSecretBytes(SECRET_BYTES);
    this.#processId = this.#options.cancelKeys.issue(secretKey, { cancel: async () => this.#running?.abort(canceled()) });
    const parameters = [...PARAMETERS].map(([parameter, value]) => encodeBackendMessage({ name: 'ParameterStatus', parameter, value }));
    const key = encodeBackendMessage({ name: 'BackendKeyData', processId: this.#processId, secretKey });
    this.#client.hold(encodeBackendMessage({ name: 'AuthenticationOk' }), ...parameters, key);
    this.#ready();
  }

  end(reason: ServiceError): void {
    this.#running?.abort(reason);
    if (!this.#client.ended) this.#client.end(errorResponse(reason, 'FATAL'));
  }

  clientData(chunk: Buffer): void {
    try {
      const scanner = this.#scanner;
      scanner.push(chunk);
      while (scanner.next()) {
        // What belongs to a COPY, which there is none of, is ignored.
        const { type, buffer, start, end } = scanner;
        if (type === FrontendType.CopyData || type === FrontendType.CopyDone || type === FrontendType.CopyFail) continue;
        this.#queue.push(decodeFrontendMessage(type, Buffer.from(buffer.subarray(start + HEADER_BYTES, end))));
      }
    } catch (error) {
      this.#client.end(errorResponse(error, 'FATAL'));
      return;
    }
    if (this.#queue.length > MESSAGES_MAX) this.#client.stream.pause();
    if (!this.#isAnswering) void this.#answerAll();
  }

  clientDrained(): void {
    this.#drained();
  }

  clientEnded(): void {
    this.#running?.abort(canceled());
    if (!this.#isAnswering) this.#client.end();
  }

  clientClosed(): void {
    this.#closed.abort();
    this.#running?.abort(canceled());
    this.#drained();
    this.#queue.length = 0;
    this.#options.cancelKeys.forget(this.#processId);
  }

  async #answerAll(): Promise<void> {
    this.#isAnswering = true;
    for (let message = this.#queue.shift(); message !== undefined; message = this.#queue.shift()) {
      if (this.#client.ended || this.#closed.signal.aborted) break;
      this.#running = new AbortController();
      try {
        await this.#answer(message);
      } catch (error) {
        this.#failed(message, error);
      }
      this.#running = undefined;
    }
    this.#isAnswering = false;
    this.#client.stream.resume();
    if (this.#client.stream.readableEnded && !this.#client.ended) this.#client.end();
  }

  #failed(message: FrontendMessage, error: unknown): void {
    if (this.#client.ended || this.#closed.signal.aborted) return;
    if (!(error instanceof ServiceError)) {
      this.#options.observe({ name: 'service.failure', message: 'a command of an operator failed', cause: error });
    }
    this.#client.write(errorResponse(error, 'ERROR'));
    if (this.#status === 'T') this.#status = 'E';
    if (message.name === 'Query' || message.name === 'FunctionCall') this.#ready();
    else this.#isSkipping = true;
  }

  async #answer(message: FrontendMessage): Promise<void> {
    if (this.#isSkipping && message.name !== 'Sync' && message.name !== 'Terminate') return;
    switch (message.name) {
      case 'Query':
        await this.#query(message.sql);
        break;
      case 'Parse':
        this.#parse(message);
        break;
      case 'Bind':
        this.#bind(message);
        break;
      case 'Describe':
        this.#describe(message.kind, message.target);
        break;
      case 'Execute':
        await this.#execute(message.portal, message.maxRows);
        break;
      case 'Close':
        (message.kind === 'statement' ? this.#statements : this.#portals).delete(message.target);
        this.#send('CloseComplete');
        break;
      case 'Sync':
        this.#isSkipping = false;
        if (this.#status === 'I') this.#portals.clear();
        this.#ready();
        break;
      case 'Terminate':
        this.#client.leave();
        break;
      case 'FunctionCall':
        throw new ServiceError('unsupported_statement', 'function calls are not supported by the console', { hint: OPERATOR_HINT });
      default:
        break;
    }
  }

  /* The simple protocol. */

  async #query(sql: string): Promise<void> {
    const commands = parseOperatorCommands(sql);
    if (commands.length === 0) this.#send('EmptyQueryResponse');
    for (const command of commands) {
      this.#checkTransaction(command);
      const result = await this.#run(command);
      if (result !== undefined) {
        this.#client.hold(rowDescription(result.columns, []));
        await this.#rows(result.columns, result.rows, []);
      }
      this.#complete(command, result?.rows.length);
    }
    this.#ready();
  }

  /* The extended protocol, without parameters. */

  #parse({ statement, sql }: Extract<FrontendMessage, { name: 'Parse' }>): void {
    const commands = parseOperatorCommands(sql);
    if (commands.length > 1) {
      throw new ServiceError('invalid_request', 'cannot insert multiple commands into a prepared statement', { sqlstate: '42601' });
    }
    if (statement !== '' && this.#statements.has(statement))
      throw new ServiceError('invalid_request', `prepared statement "${statement}" already exists`, { sqlstate: '42P05' });
    if (this.#statements.size >= STATEMENTS_MAX)
      throw new ServiceError('payload_too_large', `the console keeps up to ${STATEMENTS_MAX} prepared statements`);
    this.#statements.set(statement, { command: commands[0] });
    this.#client.write(PARSE_COMPLETE);
  }

  #bind({ portal, statement, parameters, resultFormats }: Extract<FrontendMessage, { name: 'Bind' }>): void {
    const { command } = this.#statementOf(statement);
    if (parameters.length > 0)
      throw protocolViolation(`bind message supplies ${parameters.length} parameters, but prepared statement "${statement}" requires 0`);
    if (this.#portals.size >= STATEMENTS_MAX)
      throw new ServiceError('payload_too_large', `the console keeps up to ${STATEMENTS_MAX} portals`);
    this.#portals.set(portal, { command, formats: resultFormats, rest: undefined });
    this.#send('BindComplete');
  }

  #describe(kind: 'statement' | 'portal', target: string): void {
    if (kind === 'statement') this.#client.hold(encodeBackendMessage({ name: 'ParameterDescription', body: Buffer.alloc(2) }));
    const { command } = kind === 'statement' ? this.#statementOf(target) : this.#portalOf(target);
    const columns = command && this.#columnsOf(command);
    if (columns === undefined) this.#send('NoData');
    else this.#client.write(rowDescription(columns, kind === 'portal' ? this.#portalOf(target).formats : []));
  }

  async #execute(name: string, maxRows: number): Promise<void> {
    const portal = this.#portalOf(name);
    const { command, formats } = portal;
    if (command === undefined) {
      this.#send('EmptyQueryResponse');
      return;
    }
    if (portal.rest === undefined) this.#checkTransaction(command);
    const result = portal.rest ?? (await this.#run(command));
    if (result === undefined) {
      this.#complete(command, undefined);
      return;
    }
    const rows = maxRows === 0 ? result.rows : result.rows.slice(0, maxRows);
    portal.rest = { columns: result.columns, rows: result.rows.slice(rows.length) };
    await this.#rows(result.columns, rows, formats);
    if (portal.rest.rows.length > 0) this.#send('PortalSuspended');
    else this.#complete(command, rows.length);
  }

  #statementOf(name: string): Prepared {
    const found = this.#statements.get(name);
    if (found === undefined)
      throw new ServiceError('invalid_request', `prepared statement "${name}" does not exist`, { sqlstate: '26000' });
    return found;
  }

  #portalOf(name: string): Portal {
    const found = this.#portals.get(name);
    if (found === undefined) throw new ServiceError('invalid_request', `portal "${name}" does not exist`, { sqlstate: '34000' });
    return found;
  }

  /* What goes to the client. */

  #send(name: 'EmptyQueryResponse' | 'BindComplete' | 'CloseComplete' | 'NoData' | 'PortalSuspended'): void {
    this.#client.write(encodeBackendMessage({ name }));
  }

  #ready(): void {
    this.#client.write(encodeBackendMessage({ name: 'ReadyForQuery', status: this.#status }));
  }

  #complete(command: OperatorCommand, rows: number | undefined): void {
    const tag = command.name === 'select' ? `SELECT ${rows ?? 0}` : command.name.toUpperCase();
    this.#client.write(encodeBackendMessage({ name: 'CommandComplete', tag }));
  }

  async #rows(columns: TableData['columns'], rows: TableData['rows'], formats: readonly number[]): Promise<void> {
    const slices = new TimeSlices();
    for (const row of rows) {
      const cells = row.map((cell, at) => encodeCell(cell, columns[at]?.[1] ?? 'text', formatOf(formats, at)));
      this.#client.write(encodeDataRow(cells));
      await slices.pause();
      if (this.#client.stream.writableNeedDrain && !this.#closed.signal.aborted) {
        await new Promise<void>((resolve) => {
          this.#drained = resolve;
        });
      }
      if (this.#closed.signal.aborted) return;
    }
  }

  #notice(message: string, detail: string): void {
    const fields = { severity: 'NOTICE', code: '00000', message, detail };
    this.#client.hold(encodeBackendMessage({ name: 'NoticeResponse', fields }));
  }

  /* The commands. */

  #checkTransaction(command: OperatorCommand): void {
    if (this.#status !== 'E' || command.name === 'commit' || command.name === 'rollback') return;
    throw new ServiceError('invalid_request', 'current transaction is aborted, commands ignored until end of transaction block', {
      sqlstate: FAILED,
    });
  }

  /** Undefined: it has no rows. @throws ServiceError 42601 where there is no such table, or not in this database */
  #columnsOf(command: OperatorCommand): TableData['columns'] | undefined {
    if (command.name === 'select') return command.what === 'one' ? [['?column?', 'int4']] : [['version', 'text']];
    if (command.name !== 'show' || command.what === 'help') return undefined;
    const parameter = parameterNamed(command.what);
    if (parameter !== undefined) return [[parameter, 'text']];
    const table = findTable(command.what);
    if (table === undefined) throw unknownTable(command.what);
    if (this.#database === 'postern') return table.columns;
    if (table.isOurs === true) throw onlyInPostern(`SHOW ${command.what.toUpperCase()}`);
    if (Object.keys(command.options).length > 0) throw onlyInPostern('LIKE, ORDER BY and LIMIT');
    return table.columns;
  }

  async #run(command: OperatorCommand): Promise<TableData | undefined> {
    const { operator, sources, observe } = this.#options;
    const origin = this.#origin;
    switch (command.name) {
      case 'show':
        return this.#show(command);
      case 'select':
        return { columns: this.#columnsOf(command) ?? [], rows: [[command.what === 'one' ? 1 : consoleVersion()]] };
      case 'begin':
        this.#status = 'T';
        return undefined;
      case 'commit':
      case 'rollback':
        this.#status = 'I';
        return undefined;
      case 'set':
        await this.#set(command.setting, command.value);
        return undefined;
      case 'reload':
        observe({ name: 'operator.command', origin, message: 'RELOAD' });
        await sources.activity.reload();
        return undefined;
      case 'kill_client': {
        observe({ name: 'operator.command', origin, message: `KILL_CLIENT ${command.sessionId ?? command.number}` });
        operator.record(await sources.activity.end(command), 'sessions.end', origin);
        return undefined;
      }
      default:
        if (command.organization !== undefined) await this.#require(command.organization);
        observe({ name: 'operator.command', origin, message: `${command.name.toUpperCase()} ${command.organization ?? ''}`.trim() });
        await this.#toOrganizations(command.name, command.organization);
        return undefined;
    }
  }

  async #show(command: Extract<OperatorCommand, { name: 'show' }>): Promise<TableData | undefined> {
    const columns = this.#columnsOf(command);
    if (columns === undefined) {
      this.#notice('Console usage', help(this.#database));
      return undefined;
    }
    const parameter = parameterNamed(command.what);
    if (parameter !== undefined) return { columns, rows: [[PARAMETERS.get(parameter) ?? '']] };
    return readTable(command.what, command.options, this.#options.sources);
  }

  /** @throws ServiceError 22023 for a value that would need more than to be noted, 55P02, 42704 */
  async #set(setting: string, value: string): Promise<void> {
    const { sources, settings, observe } = this.#options;
    const name = setting.toLowerCase();
    if (SETTABLE.has(name)) {
      if (SETTABLE.get(name)?.test(value) !== false) return;
      throw new ServiceError('invalid_request', `invalid value for parameter "${setting}": "${value}"`, {
        hint: `It is ${PARAMETERS.get(name) ?? 'on'} here.`,
      });
    }
    const change = settingChange(name, value, settings);
    observe({ name: 'operator.command', origin: this.#origin, message: `SET ${change.setting} = '${change.value}'` });
    await sources.activity.set(change.setting, change.value);
  }

  /** @throws ServiceError 3D000 */
  async #require(id: string): Promise<void> {
    const found = await this.#options.sources.catalog.organizations.find(id);
    if (found === undefined || found.status === 'dropped')
      throw new ServiceError('unknown_database', `organization "${id}" does not exist`);
  }

  async #toOrganizations(verb: string, id: string | undefined): Promise<void> {
    const { operator, sources } = this.#options;
    const origin = this.#origin;
    const { activity } = sources;
    switch (verb) {
      case 'pause':
        for (const one of await this.#meant(id)) await operator.pause(one, origin);
        await this.#quiet(id);
        break;
      case 'resume':
        await this.#resume(id);
        break;
      case 'reconnect':
        await activity.reconnect(id);
        break;
      case 'disable':
        await operator.suspend(id ?? '', origin);
        break;
      case 'enable':
        await operator.resume(id ?? '', origin);
        break;
      default:
        await operator.pause(id ?? '', origin);
        await activity.endAll(id ?? '');
        operator.record(id ?? '', 'sessions.end', origin);
    }
  }

  async #meant(id: string | undefined): Promise<readonly string[]> {
    if (id !== undefined) return [id];
    const active = await this.#options.sources.catalog.organizations.list({ status: 'active' });
    return active.map((organization) => organization.id);
  }

  async #resume(id: string | undefined): Promise<void> {
    const { operator, sources } = this.#options;
    const paused = id === undefined ? [...(await sources.catalog.organizations.paused())] : [id];
    let count = 0;
    for (const one of paused) count += Number(await operator.unpause(one, this.#origin));
    if (count === 0)
      throw new ServiceError('invalid_request', `${id ?? 'no organization'} is ${id === undefined ? '' : 'not '}paused`, {
        sqlstate: '55000',
      });
  }

  /** Waits until no backend is in use. The pause stays when the wait is canceled. */
  async #quiet(id: string | undefined): Promise<void> {
    const { signal } = this.#running ?? this.#closed;
    while ((await this.#options.sources.activity.busyBackends(id)) > 0) {
      await delay(QUIET_CHECK_MS, undefined, { signal }).catch(() => {});
      if (signal.aborted) throw canceled();
    }
  }
}

function canceled(): ServiceError {
  return new ServiceError('query_canceled', 'canceling statement due to user request');
}

function parameterNamed(name: string): string | undefined {
  return [...PARAMETERS.keys()].find((parameter) => parameter.toLowerCase() === name);
}

function unknownTable(what: string): ServiceError {
  return new ServiceError('invalid_request', `there is no SHOW ${what.toUpperCase().slice(0, 64)}`, {
    sqlstate: '42601',
    hint: OPERATOR_HINT,
  });
}

function onlyInPostern(what: string): ServiceError {
  return new ServiceError('invalid_request', `PgBouncer has no ${what}`, {
    sqlstate: '42601',
    hint: 'Connect to the database postern for that.',
  });
}

function help(database: ConsoleDatabase): string {
  const tables = [`SHOW HELP|${tableNames(false).join('|')}`];
  const ours = [`SHOW ${tableNames(true).join('|')}`, "SHOW … [LIKE '<pattern>'] [ORDER BY <column> [DESC]] [LIMIT <n>]"];
  const commands = [
    'PAUSE [<organization>]',
    'RESUME [<organization>]',
    'RECONNECT [<organization>]',
    'DISABLE <organization>',
    'ENABLE <organization>',
    'KILL <organization>',
    'KILL_CLIENT <id or ptr>',
    'RELOAD',
    'SET <setting> = <value>',
  ];
  return ['', ...tables, ...(database === 'postern' ? ours : []), ...commands].join('\n\t');
}

const OIDS: Readonly<Record<ColumnType, { readonly dataTypeOid: number; readonly dataTypeSize: number }>> = {
  text: { dataTypeOid: 25, dataTypeSize: -1 },
  int4: { dataTypeOid: 23, dataTypeSize: 4 },
  int8: { dataTypeOid: 20, dataTypeSize: 8 },
  numeric: { dataTypeOid: 1_700, dataTypeSize: -1 },
};

function rowDescription(columns: TableData['columns'], formats: readonly number[]): Buffer {
  return encodeRowDescription(
    columns.map(([name, type], at) => ({
      name,
      tableOid: 0,
      columnNumber: 0,
      ...OIDS[type],
      typeModifier: -1,
      format: formatOf(formats, at),
    })),
  );
}

/** No format: all text; one: for all. */
function formatOf(formats: readonly number[], column: number): number {
  return (formats.length === 1 ? formats[0] : formats[column]) ?? 0;
}

function encodeCell(cell: Cell, type: ColumnType, format: number): Buffer | null {
  if (cell === null) return null;
  if (format === 0 || type === 'text') return Buffer.from(String(cell));
  if (type === 'numeric') return encodeNumeric(Number(cell));
  const bytes = Buffer.alloc(type === 'int4' ? 4 : 8);
  if (type === 'int4') bytes.writeInt32BE(Number(cell));
  else bytes.writeBigInt64BE(BigInt(cell));
  return bytes;
}

const NUMERIC_BASE = 10_000;

/** @param value a whole number, not negative @see https://github.com/postgres/postgres/blob/master/src/backend/utils/adt/numeric.c numeric_send */
function encodeNumeric(value: number): Buffer {
  const digits: number[] = [];
  for (let rest = value; rest > 0; rest = Math.floor(rest / NUMERIC_BASE)) digits.unshift(rest % NUMERIC_BASE);
  // The number of digits, the weight of the first one, the sign and the scale.
  const words = [digits.length, Math.max(0, digits.length - 1), 0, 0, ...digits];
  const bytes = Buffer.alloc(2 * words.length);
  for (const [at, word] of words.entries()) bytes.writeInt16BE(word, 2 * at);
  return bytes;
}
