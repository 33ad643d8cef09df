import { writeSync } from 'node:fs';
import { type Logger, pino } from 'pino';
import type { Observation, ObservationHandlers, Observe, ObservedStatement } from '../observation.ts';

/** No string of a log line is longer. What others chose is in many of them, and a long line says no more than a short one. */
const MAX_CHARACTERS = 1_024;
/** Ends what was cut. Whatever is masked may end here too. */
const CUT = '\u2026';

/**
 * Keys, passwords in URLs and SCRAM verifiers, which might occur in messages of other software. Each takes a time that grows with the text
 * and no faster: what has begun as a password ends somewhere, and is not looked at again.
 */
const SECRETS: readonly (readonly [RegExp, (...found: readonly string[]) => string])[] = [
  [/pst_[0-9A-Za-z]{8,}/g, () => 'pst_***'],
  [/(:\/\/[^\s:/@"]*):[^\s@"\u2026]*([@\u2026]?)/g, (whole, before, end) => (end === '' ? whole : `${before}:***${end}`)],
  [/SCRAM-SHA-256\$[^\s"']+/g, () => 'SCRAM-SHA-256$***'],
  [
    /(\bpassword(?:\s*[=:]\s*|\s+))(?:E?'(?:[^'"\\\u2026]|\\.)*['\u2026]|\\"(?:[^"\\\u2026]|\\[^"])*(?:\\"|\u2026))/gi,
    (_whole, before) => `${before}'***'`,
  ],
];

/** What would let a value that others chose steer a terminal. */
const CONTROL = /(?!\n)[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu;

interface LoggerOptions {
  /** Default: standard output. */
  readonly destination?: { write(line: string): void } | undefined;
  /** Which of several workers writes. */
  readonly worker?: number;
}

/** How much of the log waits for a reader that is slow. */
const WAITING_MAX_BYTES = 1_048_576;
const RETRY_MS = 20;
const END_TRIES_MAX = 25;

/** Where lines are written to. */
interface LogFile {
  /** @returns how many bytes have been written @throws an error of the operating system, EAGAIN where the reader is slow */
  write(bytes: Uint8Array): number;
}

/**
 * Writes lines to a file, a pipe or a socket, and never waits for it. What a slow reader has not read yet waits in memory; beyond a limit, and
 * when a line cannot be written at all (a full disk, nobody at the other end), lines are dropped and counted: a service without a log is
 * better than none.
 */
export class LogOutput {
  /** Lines that were not written, or not whole. */
  dropped = 0;
  readonly #file: LogFile;
  #waiting: Buffer[] = [];
  #waitingBytes = 0;
  /** The last line in the file has no end. */
  #isTorn = false;
  /** The first of those that wait is the rest of it. */
  #isRest = false;
  #retry: NodeJS.Timeout | undefined;

  constructor(file: LogFile) {
    this.#file = file;
  }

  write(line: string): void {
    const bytes = Buffer.from(line);
    if (this.#waitingBytes + bytes.length > WAITING_MAX_BYTES) {
      this.dropped += 1;
      return;
    }
    this.#waiting.push(bytes);
    this.#waitingBytes += bytes.length;
    // While a reader is slow, one attempt is made for all lines.
    if (this.#retry === undefined) this.#flush();
  }

  /** Before the process ends: gives a slow reader a moment. */
  end(): void {
    for (let tries = 0; this.#waiting.length > 0 && tries < END_TRIES_MAX; tries += 1) {
      if (tries > 0) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, RETRY_MS);
      this.#flush();
    }
  }

  /** Writes as much of what waits as can be written now. */
  #flush(): void {
    clearTimeout(this.#retry);
    this.#retry = undefined;
    for (let line = this.#waiting[0]; line !== undefined; line = this.#waiting[0]) {
      const rest = this.#writeSome(this.#isTorn && !this.#isRest ? Buffer.concat([NEWLINE, line]) : line);
      if (rest === undefined) {
        this.#retry = setTimeout(() => this.#flush(), RETRY_MS).unref();
        return;
      }
      this.#isRest = rest.length > 0;
      this.#waitingBytes -= line.length - rest.length;
      if (this.#isRest) this.#waiting[0] = rest;
      else this.#waiting.shift();
    }
  }

  /** @returns what is left of the line, nothing if it is dropped; undefined if nothing can be written now */
  #writeSome(line: Buffer): Buffer | undefined {
    try {
      const written = this.#file.write(line);
      if (written === 0) return undefined;
      this.#isTorn = written < line.length;
      return line.subarray(written);
    } catch (error) {
      if (codeOf(error) === 'EAGAIN') return undefined;
      this.dropped += 1;
      return NOTHING;
    }
  }
}

const NEWLINE = Buffer.from('\n');
const NOTHING = Buffer.alloc(0);

function codeOf(error: unknown): unknown {
  return error instanceof Error && 'code' in error ? error.code : undefined;
}

const STANDARD_OUTPUT = 1;

/** The log of this process. */
export const standardOutput = new LogOutput({ write: (bytes) => writeSync(STANDARD_OUTPUT, bytes) });

/** A logger that writes one JSON object a line, with secrets masked. */
export function createLogger(level: string, { destination, worker }: LoggerOptions = {}): Logger {
  const formatters = { level: (name: string) => ({ level: name }) };
  const base = worker === undefined ? null : { worker };
  const options = { level, base, formatters, timestamp: pino.stdTimeFunctions.isoTime, hooks: { streamWrite: redact } };
  return pino(options, destination ?? standardOutput);
}

/** Writes the logger's lines as people read them. That the service has started is in its greeting. */
export function linesForPeople(out: { write(text: string): void }): { write(line: string): void } {
  return {
    write(line) {
      const { level, time, event, msg, cause, ...fields } = JSON.parse(line);
      if (event === 'service.started') return;
      const told = event === 'service.stopping' ? {} : fields;
      const details = Object.entries(told).map(([name, value]) => ` ${name}=${typeof value === 'string' ? value : JSON.stringify(value)}`);
      const why = typeof cause === 'object' ? `\n${cause.stack}` : '';
      out.write(`${time.slice(11, 19)} ${level.padEnd(5)} ${msg}${details.join('')}${why}\n`.replace(CONTROL, '\ufffd'));
    },
  };
}

function redact(line: string): string {
  return SECRETS.reduce((text, [pattern, replacement]) => text.replace(pattern, replacement), line);
}

type Level = 'error' | 'warn' | 'info' | 'debug' | 'trace';

/** `debug` has calls and sessions, `trace` their details; what operators need is at `info` and above. */
const LEVELS: Readonly<Record<Observation['name'], Level>> = {
  'service.started': 'info',
  'service.stopping': 'info',
  'service.warning': 'warn',
  'service.failure': 'error',
  'http.request': 'debug',
  'login.succeeded': 'debug',
  'login.failed': 'warn',
  'operator.opened': 'info',
  'operator.command': 'info',
  'http.connected': 'trace',
  'http.disconnected': 'trace',
  'wire.connected': 'trace',
  'wire.disconnected': 'trace',
  'proxy_header.refused': 'warn',
  'wire.session.opened': 'debug',
  'wire.session.closed': 'debug',
  'wire.statement': 'debug',
  'statement.slow': 'warn',
  'wire.query': 'trace',
  'wire.query.failed': 'trace',
  'wire.pinned': 'trace',
  'wire.unpinned': 'trace',
  'request.shared': 'trace',
  'request.requeued': 'debug',
  'lease.granted': 'trace',
  'lease.refused': 'warn',
  'lease.released': 'trace',
  'backend.opened': 'debug',
  'backend.closed': 'debug',
  'backend.stuck': 'warn',
  'backend.unstuck': 'info',
  'backend.login_healed': 'warn',
  'organization.disk': 'warn',
  'backup.begun': 'info',
  'backup.done': 'info',
  'backup.failed': 'warn',
  'backup.resumed': 'info',
  'backup.verified': 'info',
  'audit.written': 'trace',
  'audit.dropped': 'error',
};

/** What clients repeat by the hundred, of themselves or because the server is away. */
const REPEATED: ReadonlySet<Observation['name']> = new Set(['login.failed', 'lease.refused', 'proxy_header.refused', 'statement.slow']);
const REPEAT_MS = 1_000;
/** Clients choose the names that they log in with. Beyond so many in a second, further ones count together. */
const REPEATED_MAX = 1_000;
const NAME_MAX_CHARACTERS = 63;

interface Repeated {
  /** How many have not been logged. */
  count: number;
  last: Observation | undefined;
}

/** Logs one a second of each organization and kind. The last of those that came meanwhile follows a second later, with their number. */
class RepeatedLines {
  readonly #write: (observation: Observation, repeated?: number) => void;
  readonly #repeated = new Map<string, Repeated>();

  constructor(write: (observation: Observation, repeated?: number) => void) {
    this.#write = write;
  }

  add(observation: Observation): void {
    const whose = `${observation.name} ${organizationOf(observation).slice(0, NAME_MAX_CHARACTERS)}`;
    const key = this.#repeated.has(whose) || this.#repeated.size < REPEATED_MAX ? whose : observation.name;
    const repeated = this.#repeated.get(key);
    if (repeated === undefined) {
      this.#write(observation);
      this.#wait(key);
    } else {
      repeated.count += 1;
      repeated.last = observation;
    }
  }

  #wait(key: string): void {
    const repeated: Repeated = { count: 0, last: undefined };
    this.#repeated.set(key, repeated);
    setTimeout(() => {
      this.#repeated.delete(key);
      if (repeated.last === undefined) return;
      this.#write(repeated.last, repeated.count);
      this.#wait(key);
    }, REPEAT_MS).unref();
  }
}

function organizationOf(observation: Observation): string {
  if ('organizationId' in observation) return observation.organizationId;
  return 'actor' in observation ? (observation.actor?.organizationId ?? '') : '';
}

/** Writes observations to the log, those of enabled levels. Of statements only the command is logged: their text may contain data of organizations. */
export function logObserver(logger: Logger): ObservationHandlers {
  const enabled = Object.entries(LEVELS).filter(([, level]) => logger.isLevelEnabled(level));
  const write = (observation: Observation, repeated?: number) =>
    logger[LEVELS[observation.name]]({ ...fieldsOf(observation), repeated }, textOf(observation));
  const repeatedLines = new RepeatedLines(write);
  return Object.fromEntries(
    enabled.map(([name]) => [
      name,
      (observation: Observation) => (REPEATED.has(observation.name) ? repeatedLines.add(observation) : write(observation)),
    ]),
  );
}

function textOf(observation: Observation): string {
  return 'message' in observation ? cut(observation.message) : observation.name;
}

function fieldsOf(observation: Observation): object {
  const { name, ...fields } = observation;
  return cutStrings({
    event: name,
    ...fields,
    ...('message' in fields ? { message: undefined } : {}),
    ...('statement' in fields && fields.statement !== undefined ? { statement: withoutText(fields.statement) } : {}),
    ...('cause' in fields ? { cause: describe(fields.cause) } : {}),
  });
}

/** Observations are a few levels deep, and have no circles. */
function cutStrings<Value>(value: Value): Value;
function cutStrings(value: unknown): unknown {
  if (typeof value === 'string') return cut(value);
  if (Array.isArray(value)) return value.map((one) => cutStrings(one));
  if (typeof value !== 'object' || value === null || value instanceof Date) return value;
  return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, cutStrings(one)]));
}

function cut(text: string, maxCharacters = MAX_CHARACTERS): string {
  return text.length <= maxCharacters ? text : `${text.slice(0, maxCharacters - 1)}${CUT}`;
}

function withoutText({ sql: _sql, ...rest }: ObservedStatement): Omit<ObservedStatement, 'sql'> {
  return rest;
}

const MAX_CAUSES = 5;
/** Of an error's message before its stack, which says where it was thrown. */
const MAX_MESSAGE_OF_STACK = 200;

/** Logs an error's name, message, code and stack only. A driver may attach other properties, such as a query with its parameters. */
function describe(cause: unknown, depth = 0): unknown {
  if (!(cause instanceof Error)) return cause === undefined ? undefined : String(cause);
  const { name: type, message } = cause;
  const code = 'code' in cause ? { code: String(cause.code) } : {};
  const inner = cause.cause === undefined || depth >= MAX_CAUSES ? {} : { cause: describe(cause.cause, depth + 1) };
  const stack = cause.stack?.replace(message, () => cut(message, MAX_MESSAGE_OF_STACK));
  return { type, message, ...code, stack, ...inner };
}

/** @see https://www.postgresql.org/docs/current/errcodes-appendix.html */
const EXHAUSTED: ReadonlyMap<string, string> = new Map([
  ['53100', 'disk_full'],
  ['53200', 'out_of_memory'],
]);
const WARN_EVERY_MS = 60_000;

/**
 * Warns, at most once a minute for each SQLSTATE, that the server has no disk space or no memory left: the clients are told, and nobody else.
 * @param isOverQuota whether an organization is refused to write because of its own size, and not of the server's disk
 */
export function exhaustionObserver(observe: Observe, isOverQuota: (organizationId: string) => boolean): ObservationHandlers {
  const warnedAt = new Map<string, number>();
  const failed = (sqlstate: string | undefined, organizationId: string | undefined) => {
    const condition = sqlstate && EXHAUSTED.get(sqlstate);
    if (!condition || (sqlstate === '53100' && organizationId !== undefined && isOverQuota(organizationId))) return;
    if (performance.now() - (warnedAt.get(sqlstate) ?? Number.NEGATIVE_INFINITY) < WARN_EVERY_MS) return;
    warnedAt.set(sqlstate, performance.now());
    // Any client can RAISE these SQLSTATEs, so the message says whose request it was.
    const whose = organizationId === undefined ? 'a request' : `a request of ${organizationId}`;
    observe({ name: 'service.warning', message: `${whose} failed with ${sqlstate} (${condition}): see the log of the PostgreSQL server` });
  };
  return {
    'wire.query.failed': ({ sqlstate, organizationId }) => failed(sqlstate, organizationId),
    'http.request': ({ outcome, actor }) => failed(outcome.sqlstate, actor?.organizationId),
  };
}
