import type { FastifyInstance, FastifyReply, FastifyRequest, onRequestHookHandler } from 'fastify';
import type { z } from 'zod';
import { ServiceError } from '../../src/errors.ts';
import type { ErrorCode } from '../errors.ts';
import { describeUnknown, refuseExcess } from '../json/excess-input.ts';
import { MAX_PARAMETERS, noQuery } from './schemas.ts';

export interface ReplyDescription {
  readonly description: string;
  readonly schema: z.ZodType;
  readonly example: unknown;
  /** Headers that this reply carries besides the usual ones: name → what it says. */
  readonly headers?: Readonly<Record<string, string>>;
  /** For those who ask for a document a line: what a line may be, and lines that make up a reply. */
  readonly lines?: { readonly schema: z.ZodType; readonly example: readonly unknown[] };
}

/** One call of the API: what the validator, the OpenAPI document and the audit log know of it. */
export interface Operation<Body = unknown, Query = unknown> {
  readonly method: 'GET' | 'POST';
  readonly path: string;
  /** Name in observations, in the audit log and as operationId, e.g. `auth.signup`. */
  readonly action: string;
  readonly tag: string;
  readonly summary: string;
  readonly description?: string;
  readonly needsKey: boolean;
  readonly query: z.ZodType<Query>;
  /** Headers that mean something to it, besides the usual ones. */
  readonly headers?: Readonly<Record<string, z.ZodType>>;
  /** `noBody` where none is read. */
  readonly body: z.ZodType<Body>;
  /** Reads bodies of the most usual form, and leaves all others to `body`, which would read the same from these; far quicker. */
  readonly usualBody?: (body: unknown) => Body | undefined;
  readonly bodyExample?: unknown;
  readonly replies: Readonly<Record<number, ReplyDescription>>;
  /** Besides those that follow from having a body or needing a key. */
  readonly errors: readonly ErrorCode[];
}

/** A request whose parts have been validated. */
export interface ValidCall<Body, Query> {
  readonly body: Body;
  readonly query: Query;
  readonly request: FastifyRequest;
  readonly reply: FastifyReply;
}

export interface Endpoint {
  readonly operation: Operation;
  readonly handle: (request: FastifyRequest, reply: FastifyReply) => Promise<unknown>;
}

/** Ties an operation to the function that performs it. */
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

/** Most calls have no query string, and nothing to be said in one. */
function readQuery<Query>(schema: z.ZodType<Query>, { query, raw }: FastifyRequest): Query {
  if (schema === (noQuery as z.ZodType) && !raw.url?.includes('?')) return query as Query;
  return validate(schema, query, 'the query string');
}

/** For the bodies of those who need no key: nobody knows who they are. */
const STRANGERS_BODY_MAX_BYTES = 16_384;

export function serve(app: FastifyInstance, { operation, handle }: Endpoint, authenticate: onRequestHookHandler): void {
  app.route({
    method: operation.method,
    url: operation.path,
    config: { action: operation.action },
    onRequest: operation.needsKey ? [authenticate] : [],
    ...(operation.needsKey ? {} : { bodyLimit: Math.min(STRANGERS_BODY_MAX_BYTES, app.initialConfig.bodyLimit ?? Infinity) }),
    handler: (request, reply) => {
      request.call.work = handle(request, reply);
      return request.call.work;
    },
  });
}

const MAX_ISSUES = 5;

/** @throws ServiceError `invalid_request` that names what is wrong, field by field */
export function validate<T>(schema: z.ZodType<T>, value: unknown, whole: string): T {
  refuseExcess(schema, value);
  refuseEndlessLists(value);
  const parsed = schema.safeParse(value, { error: ({ input }) => (input === undefined ? 'is required' : undefined) });
  if (parsed.success) return parsed.data;
  const issues = parsed.error.issues.slice(0, MAX_ISSUES).map((issue) => describeIssue(issue, whole));
  throw new ServiceError('invalid_request', issues.join('; '));
}

/** The longest list of a request has so many; in longer ones each item would be looked at before its length is. */
function refuseEndlessLists(value: unknown): void {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return;
  for (const [name, list] of Object.entries(value)) {
    if (!Array.isArray(list) || list.length <= MAX_PARAMETERS) continue;
    throw new ServiceError('invalid_request', `${name.slice(0, 100)}: Too big: expected array to have <=${MAX_PARAMETERS} items`);
  }
}

function describeIssue(issue: z.core.$ZodIssue, whole: string): string {
  const place = issue.path
    .map((part) => (typeof part === 'number' ? `[${part}]` : `.${String(part)}`))
    .join('')
    .replace(/^\./, '');
  if (issue.code === 'unrecognized_keys') return describeUnknown(issue.keys, place);
  return `${place === '' ? whole : place}: ${issue.message.replace(/^Invalid input: /, '').replace('LosslessNumber', 'a number with too many digits')}`;
}
