import type { FastifyInstance, FastifyReply, FastifyRequest, onRequestHookHandler } from 'fastify';
import type * as z from 'zod';
import type { AuditAction } from '../src/catalog/audit/records.ts';
import type { KeyScope } from '../src/catalog/key-rows.ts';
import { httpStatementMsOf } from '../src/catalog/limits.ts';
import type { Placement } from '../src/catalog/organization.ts';
import type { QueryStatistics } from '../src/catalog/query-statistics.ts';
import type { Usage } from '../src/catalog/usage.ts';
import type { Config } from '../src/config.ts';
import { ServiceError } from '../src/errors.ts';
import type { Observe } from '../src/observation.ts';
import type { ApiKeys, SignUps } from '../src/router/accounts.ts';
import type { Authenticator } from '../src/router/authenticator.ts';
import type { Tenant } from '../src/router/lease.ts';
import type { Clones } from '../src/router/moves.ts';
import type { ConsoleSignIn } from '../src/router/one-time-sign-in.ts';
import type { Operator } from '../src/router/operator.ts';
import type { Router } from '../src/router/router.ts';
import type { Sessions } from '../src/router/sessions.ts';
import type { QueryScheduler } from '../src/sql/query-scheduler.ts';
import type { ErrorCode } from './errors.ts';
import type { RefusalCounter } from './problems.ts';
import type { WireAddress } from './reply-schemas.ts';
import { tenantOf } from './request-context.ts';
import { noQuery } from './request-schemas.ts';
import { validate } from './validation.ts';

export interface ReplyDescription {
  readonly description: string;
  readonly schema: z.ZodType;
  readonly example: unknown;
  /** Headers of this reply in addition to the usual ones: name → description. */
  readonly headers?: Readonly<Record<string, string>>;
  /** The form with one document a line: the schema of a line, and example lines. */
  readonly lines?: { readonly schema: z.ZodType; readonly example: readonly unknown[] };
  /** An example of the form as comma-separated values. */
  readonly csv?: string;
}

/** One operation of the API, as the validator, the OpenAPI document and the audit log use it. */
export interface Operation<Body = unknown, Query = unknown> {
  readonly method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';
  /** May have parameters: `/api/keys/{keyId}`. */
  readonly path: string;
  /** Its name in observations and the audit log, e.g. `auth.signup`. */
  readonly action: AuditAction;
  /** Its name in generated clients, e.g. `signUp`. */
  readonly operationId: string;
  readonly tag: string;
  readonly summary: string;
  readonly description?: string;
  readonly needsKey: boolean;
  /** The scope that the key needs; undefined: any. */
  readonly scope?: KeyScope;
  readonly query: z.ZodType<Query>;
  /** Request headers in addition to the usual ones. */
  readonly headers?: Readonly<Record<string, z.ZodType>>;
  /** `noBody` if none is read. */
  readonly body: z.ZodType<Body>;
  /** Validates bodies of the most frequent form, much faster than `body`, which gives the same result; other bodies are left to `body`. */
  readonly usualBody?: (body: unknown) => Body | undefined;
  readonly bodyExample?: unknown;
  readonly replies: Readonly<Record<number, ReplyDescription>>;
  /** Errors in addition to those that follow from having a body or needing a key. */
  readonly errors: readonly ErrorCode[];
  /** Its errors, by status, if they are no problem documents. */
  readonly ownErrors?: Readonly<Record<number, ReplyDescription>>;
}

/** An operation that is served beside the endpoints, for the OpenAPI document. */
export type DocumentedOperation = Omit<Operation, 'action'>;

/** A request whose parts have been validated. */
interface ValidCall<Body, Query> {
  readonly body: Body;
  readonly query: Query;
  readonly request: FastifyRequest;
  readonly reply: FastifyReply;
}

export interface Endpoint {
  readonly operation: Operation;
  readonly handle: (request: FastifyRequest, reply: FastifyReply) => Promise<unknown>;
}

/** Registers an operation with the function that performs it. */
export function endpoint<Body, Query>(
  operation: Operation<Body, Query>,
  perform: (call: ValidCall<Body, Query>) => Promise<unknown>,
): Endpoint & { readonly operation: Operation<Body, Query> } {
  return {
    operation,
    handle: (request, reply) =>
      perform({
        query: readQuery(operation.query, request),
        body: operation.usualBody?.(request.body) ?? validate(operation.body, request.body, 'the body'),
        request,
        reply,
      }),
  };
}

/** Most operations have no query string. */
function readQuery<Query>(schema: z.ZodType<Query>, { query, raw }: FastifyRequest): Query {
  if (schema === (noQuery as z.ZodType) && !raw.url?.includes('?')) return query as Query;
  return validate(schema, query, 'the query string');
}

/** The body limit of operations that need no key, whose callers are unknown. */
const STRANGERS_BODY_MAX_BYTES = 16_384;

export function serve(app: FastifyInstance, { operation, handle }: Endpoint, authenticate: onRequestHookHandler): void {
  app.route({
    method: operation.method,
    url: operation.path.replaceAll(/\{(\w+)\}/g, ':$1'),
    config: { action: operation.action },
    onRequest: [...(operation.needsKey ? [authenticate] : []), ...(operation.scope === undefined ? [] : [requireScope(operation.scope)])],
    ...(operation.needsKey ? {} : { bodyLimit: Math.min(STRANGERS_BODY_MAX_BYTES, app.initialConfig.bodyLimit ?? Infinity) }),
    handler: (request, reply) => {
      request.call.work = handle(request, reply);
      return request.call.work;
    },
  });
}

/** Each scope allows what those before it do. */
const SCOPES: readonly KeyScope[] = ['read', 'data', 'write', 'admin'];

/** Refuses keys whose scope does not allow this one. Runs after the authentication. */
function requireScope(scope: KeyScope): onRequestHookHandler {
  return (request, _reply, done) => {
    const { key } = tenantOf(request);
    done(
      SCOPES.indexOf(key.scope) >= SCOPES.indexOf(scope)
        ? undefined
        : new ServiceError('forbidden', `this needs a key with the scope ${scope}; this one has ${key.scope}`),
    );
  };
}

/** Errors before there is a database session. */
export const LEASE_ERRORS: readonly ErrorCode[] = [
  'pool_timeout',
  'too_many_connections',
  'backend_lost',
  'database_busy',
  'database_unavailable',
];

/** Errors while SQL runs. */
export const SQL_ERRORS: readonly ErrorCode[] = [
  'sql_error',
  'forbidden',
  'unsupported_statement',
  'statement_canceled',
  'lock_not_available',
  'serialization_failure',
  'deadlock_detected',
  'statement_timeout',
  'response_too_large',
];

/** Errors of an Idempotency-Key. */
export const IDEMPOTENCY_ERRORS: readonly ErrorCode[] = ['idempotency_in_progress', 'idempotency_key_reused'];

/** What the routes use. */
export interface RouteContext {
  readonly authenticator: Pick<Authenticator, 'authenticate' | 'recognize' | 'isInvalid'>;
  readonly router: Pick<Router, 'inputs' | 'lease' | 'results'> & {
    readonly catalog: {
      readonly organizations: Pick<Router['catalog']['organizations'], 'find' | 'updateProfile'>;
      readonly savedQueries: Pick<Router['catalog']['savedQueries'], 'list' | 'find' | 'save' | 'delete'>;
      readonly audit: Pick<Router['catalog']['audit'], 'list' | 'verify'>;
    };
  };
  readonly signUps: Pick<SignUps, 'create'>;
  /** Only where the service has been started for development. */
  readonly consoleSignIn?: Pick<ConsoleSignIn, 'redeem'>;
  readonly operator: Pick<Operator, 'dropAsAsked'>;
  readonly clones: Pick<Clones, 'create' | 'list' | 'delete'>;
  readonly keys: Pick<ApiKeys, 'list' | 'create' | 'update' | 'revoke' | 'rotate'>;
  readonly sessions: Pick<Sessions, 'idOf' | 'list' | 'signal'>;
  readonly queries: QueryScheduler;
  readonly statistics: {
    /** Of the organization's server. @throws ServiceError `not_ready` */
    readonly queries: Pick<QueryStatistics, 'read'>;
    readonly usage: Pick<Usage, 'read' | 'counters'>;
    /** As {@link DataSizes}. */
    readonly dataBytes: (placement: Placement) => Promise<number>;
    /** Requests of an organization in progress. */
    readonly requestsOf: (organizationId: string) => number;
    /** As {@link relationCounters} of the shared database. */
    readonly relationCounters: (placement: Placement) => Promise<string | undefined>;
  };
  readonly refusals: RefusalCounter;
  readonly config: Config;
  readonly observe: Observe;
  /**
   * The wire door's address for clients. It is a function because the port may be known only after listening.
   * @param asked the host that the client has sent its request to, if it is a valid name or address
   */
  readonly connection: (asked: string | undefined) => WireAddress;
  /** Whether PostgreSQL answers. */
  readonly ready: () => Promise<void>;
}

/** @throws ServiceError `invalid_request` for a longer timeout than the service, or a limit of the organization's own, allows */
export function timeoutOf(wantedMs: number | undefined, config: Config, { organization }: Pick<Tenant, 'organization'>): number {
  const { POSTERN_STATEMENT_TIMEOUT_MS: usualMs } = config;
  const maxMs = httpStatementMsOf(organization, config);
  if (wantedMs === undefined) return usualMs === 0 ? maxMs : Math.min(usualMs, maxMs);
  if (wantedMs > maxMs) throw new ServiceError('invalid_request', `timeoutMs: must be a whole number from 1 to ${maxMs}`);
  return wantedMs;
}
