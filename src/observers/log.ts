import { type Logger, pino } from 'pino';
import type { Observation, Observe, ObservedStatement } from '../observation.ts';

/** Keys, passwords in URLs and SCRAM verifiers, in case one gets into a message that somebody else wrote. */
const SECRETS: readonly (readonly [RegExp, string])[] = [
  [/pst_[0-9A-Za-z]{8,}/g, 'pst_***'],
  [/(\w+:\/\/[^\s:/@"]*):[^\s@"]*@/g, '$1:***@'],
  [/SCRAM-SHA-256\$[^\s"']+/g, 'SCRAM-SHA-256$***'],
  [/(\bpassword\s*(?:=|:|\s)\s*)(E?'[^']*'|\\"[^"\\]*\\")/gi, "$1'***'"],
];

/** A logger that writes one JSON object a line, in which no secret survives. */
export function createLogger(level: string, destination?: { write(line: string): void }): Logger {
  const options = { level, base: null, timestamp: pino.stdTimeFunctions.isoTime, hooks: { streamWrite: redact } };
  return destination === undefined ? pino(options) : pino(options, destination);
}

function redact(line: string): string {
  return SECRETS.reduce((text, [pattern, replacement]) => text.replace(pattern, replacement), line);
}

type Level = 'error' | 'warn' | 'info' | 'debug' | 'trace';

/** One call or session is for debugging, what serves it for tracing; what an operator should see stands at info and above. */
const LEVELS: Readonly<Record<Observation['name'], Level>> = {
  'service.started': 'info',
  'service.stopping': 'info',
  'service.warning': 'warn',
  'service.failure': 'error',
  'http.request': 'debug',
  'login.succeeded': 'debug',
  'login.failed': 'warn',
  'http.connected': 'trace',
  'http.disconnected': 'trace',
  'wire.connected': 'trace',
  'wire.disconnected': 'trace',
  'wire.session.opened': 'debug',
  'wire.session.closed': 'debug',
  'wire.statement': 'debug',
  'wire.query': 'trace',
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
  'audit.written': 'trace',
  'audit.dropped': 'error',
};

/** Tells the log. Statements are told by their command only: their text may hold what is not the operator's to read. */
export function logObserver(logger: Logger): Observe {
  const told = new Map(Object.entries(LEVELS).filter(([, level]) => logger.isLevelEnabled(level)));
  return (observation) => {
    const level = told.get(observation.name);
    if (level !== undefined) logger[level](fieldsOf(observation), textOf(observation));
  };
}

function textOf(observation: Observation): string {
  return 'message' in observation ? observation.message : observation.name;
}

function fieldsOf(observation: Observation): object {
  const { name, ...fields } = observation;
  return {
    event: name,
    ...fields,
    ...('message' in fields ? { message: undefined } : {}),
    ...('statement' in fields && fields.statement !== undefined ? { statement: withoutText(fields.statement) } : {}),
    ...('cause' in fields ? { cause: describe(fields.cause) } : {}),
  };
}

function withoutText({ sql: _sql, ...rest }: ObservedStatement): Omit<ObservedStatement, 'sql'> {
  return rest;
}

const MAX_CAUSES = 5;

/** An error by what it says, never by all that a driver hung on it: that may be a query with its parameters. */
function describe(cause: unknown, depth = 0): unknown {
  if (!(cause instanceof Error)) return cause === undefined ? undefined : String(cause);
  const code = 'code' in cause ? { code: String(cause.code) } : {};
  const inner = cause.cause === undefined || depth >= MAX_CAUSES ? {} : { cause: describe(cause.cause, depth + 1) };
  return { type: cause.name, message: cause.message, ...code, stack: cause.stack, ...inner };
}
