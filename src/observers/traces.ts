import { performance } from 'node:perf_hooks';
import { setTimeout as delay } from 'node:timers/promises';
import type { HostAddress } from '../backend/server-hosts.ts';
import type { Placement } from '../catalog/organization.ts';
import { eachStatement, leadingKeywords } from '../syntax/statements.ts';

/*
 * The part of OpenTelemetry's API that is used here. Whatever version of the package `@opentelemetry/api` an SDK comes with, it registers
 * its provider under this key; a copy of the package in here would ignore that of an older one.
 * @see https://github.com/open-telemetry/opentelemetry-js/blob/main/api/src/internal/global-utils.ts
 */

const API = Symbol.for('opentelemetry.js.api.1');
const SPAN_KEY = Symbol.for('OpenTelemetry Context Key SPAN');
const KIND_CLIENT = 2;
const STATUS_ERROR = 2;

interface TracerProvider {
  getTracer(name: string): Tracer;
  getDelegate?(): { forceFlush?(): Promise<void> };
}

interface Tracer {
  startSpan(name: string, options: SpanOptions, context: Context): Span;
}

interface SpanOptions {
  readonly kind: number;
  readonly startTime: number;
  readonly attributes: Readonly<Record<string, string | number>>;
}

interface Span {
  setStatus(status: { readonly code: number }): void;
  end(endTime: number): void;
}

/** A trace, and the caller's span in it. */
interface SpanContext {
  readonly traceId: string;
  readonly spanId: string;
  readonly traceFlags: number;
  readonly isRemote: true;
}

/** Values that go along with a call. */
class Context {
  readonly #values: ReadonlyMap<symbol, unknown>;

  constructor(values: ReadonlyMap<symbol, unknown>) {
    this.#values = values;
  }

  getValue(key: symbol): unknown {
    return this.#values.get(key);
  }

  setValue(key: symbol, value: unknown): Context {
    return new Context(new Map(this.#values).set(key, value));
  }

  deleteValue(key: symbol): Context {
    return new Context(new Map([...this.#values].filter(([other]) => other !== key)));
  }
}

const ROOT = new Context(new Map());

/** What a request had PostgreSQL do. */
export interface TracedRequest {
  readonly placement: Placement;
  readonly durationMs: number;
  /** The SQLSTATE of the error that the client was told; undefined: it succeeded. */
  readonly sqlstate: string | undefined;
  /** Read for the operation, unless the command is known, and its end for a traceparent; undefined: it is not known. */
  readonly sql: string | undefined;
  /** The command tag, if it is known. Several are separated by commas. */
  readonly command?: string | undefined;
  /** The header of that name. */
  readonly traceparent?: string | undefined;
}

/** How long spans may take to be sent when the service ends. */
const FLUSH_TIMEOUT_MS = 2_000;

/**
 * Makes a span of each request that runs SQL, where an SDK of OpenTelemetry was loaded before the service. Neither the text nor the
 * parameters are in it.
 * @see https://opentelemetry.io/docs/specs/semconv/db/postgresql/
 */
export class Traces {
  readonly #provider: TracerProvider;
  readonly #tracer: Tracer;
  readonly #addressOf: (placement: Placement) => HostAddress | undefined;

  /** @param addressOf the host in use of the organization's server @returns undefined: there is no SDK */
  static open(addressOf: (placement: Placement) => HostAddress | undefined): Traces | undefined {
    const { trace } = (Reflect.get(globalThis, API) ?? {}) as { readonly trace?: TracerProvider };
    return trace && new Traces(trace, addressOf);
  }

  private constructor(provider: TracerProvider, addressOf: (placement: Placement) => HostAddress | undefined) {
    this.#provider = provider;
    this.#tracer = provider.getTracer('postern');
    this.#addressOf = addressOf;
  }

  /** Called when a request has been answered. What an SDK throws does no harm to it. */
  answered(request: TracedRequest): void {
    try {
      this.#makeSpan(request);
    } catch {
      // A span less: an SDK tells its faults itself (diag).
    }
  }

  #makeSpan({ placement, durationMs, sqlstate, sql, command, traceparent }: TracedRequest): void {
    const endTime = performance.now();
    const operation = command === undefined ? operationOf(sql) : ofCommand(command);
    const namespace = placement.kind === 'schema' ? `${placement.database}|${placement.schema}` : placement.database;
    const attributes = {
      'db.system.name': 'postgresql',
      'db.namespace': namespace,
      ...(operation === undefined ? {} : { 'db.operation.name': operation }),
      ...serverAttributes(this.#addressOf(placement)),
      ...(sqlstate === undefined ? {} : { 'db.response.status_code': sqlstate, 'error.type': sqlstate }),
    };
    const parent = spanContextOf(traceparent) ?? spanContextOf(commentedParent(sql));
    const context = parent === undefined ? ROOT : ROOT.setValue(SPAN_KEY, { spanContext: () => parent });
    const options = { kind: KIND_CLIENT, startTime: endTime - durationMs, attributes };
    const span = this.#tracer.startSpan(operation === undefined ? namespace : `${operation} ${namespace}`, options, context);
    if (sqlstate !== undefined) span.setStatus({ code: STATUS_ERROR });
    span.end(endTime);
  }

  /** Has the SDK send what it has not sent yet, for a moment at most. */
  async close(): Promise<void> {
    const flushing = this.#provider.getDelegate?.().forceFlush?.();
    await Promise.race([flushing?.catch(() => {}), delay(FLUSH_TIMEOUT_MS, undefined, { ref: false })]);
  }
}

function serverAttributes(address: HostAddress | undefined): Readonly<Record<string, string | number>> {
  if (address === undefined) return {};
  const { host, port } = address;
  // The name of a Unix socket has the port.
  if (host.startsWith('/')) return { 'server.address': `${host}/.s.PGSQL.${port}` };
  return { 'server.address': host, 'server.port': port };
}

/** Commands of PostgreSQL, so that nothing else of a text gets into a span. */
const COMMANDS: ReadonlySet<string> = new Set(
  'ABORT ALTER ANALYZE BEGIN CALL CHECKPOINT CLOSE CLUSTER COMMENT COMMIT COPY CREATE DEALLOCATE DECLARE DELETE DISCARD DO DROP END EXECUTE EXPLAIN FETCH GRANT IMPORT INSERT LISTEN LOAD LOCK MERGE MOVE NOTIFY PREPARE REASSIGN REFRESH REINDEX RELEASE RESET REVOKE ROLLBACK SAVEPOINT SECURITY SELECT SET SHOW START TABLE TRUNCATE UNLISTEN UPDATE VACUUM VALUES'.split(
    ' ',
  ),
);

/** The first word of a command tag. @param tag with commas it is of several statements */
function ofCommand(tag: string): string | undefined {
  const [word = ''] = tag.split(' ', 1);
  return tag.includes(',') || !COMMANDS.has(word) ? undefined : word;
}

/** To read a longer text would keep other clients waiting. */
const READ_MAX_CHARACTERS = 8_192;

/** The first word of a text with one statement. */
function operationOf(sql: string | undefined): string | undefined {
  if (sql === undefined || sql.length > READ_MAX_CHARACTERS) return undefined;
  const [word = ''] = leadingKeywords(sql, 1);
  return COMMANDS.has(word) && isOne(sql) ? word : undefined;
}

function isOne(sql: string): boolean {
  if (!sql.includes(';')) return true;
  let count = 0;
  for (const statement of eachStatement(sql)) {
    if (statement !== undefined) count += 1;
    if (count > 1) return false;
  }
  return true;
}

/** A comment of sqlcommenter's at the end of the text. */
const COMMENT_MAX_CHARACTERS = 256;
const COMMENTED = /(?:\/\*|,)\s*traceparent='([0-9a-f-]{55})'[^*]*\*\/[\s;]*$/;

/** @see https://google.github.io/sqlcommenter/spec/ */
function commentedParent(sql: string | undefined): string | undefined {
  return sql === undefined ? undefined : COMMENTED.exec(sql.slice(-COMMENT_MAX_CHARACTERS))?.[1];
}

const TRACEPARENT = /^(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?$/;

/** @see https://www.w3.org/TR/trace-context/#traceparent-header */
function spanContextOf(traceparent: string | undefined): SpanContext | undefined {
  const [, traceId, spanId, flags = ''] = TRACEPARENT.exec(traceparent ?? '') ?? [];
  if (traceId === undefined || spanId === undefined) return undefined;
  return { traceId, spanId, traceFlags: Number.parseInt(flags, 16), isRemote: true };
}
