import { STATUS_CODES } from 'node:http';
import * as z from 'zod';
import { ERRORS, type ErrorCode, type ErrorShape } from '../errors.ts';
import { LINES_TYPE } from '../headers.ts';
import * as neon from '../neon/route.ts';
import type { DocumentedOperation as Operation, ReplyDescription } from '../operation.ts';
import * as replySchemas from '../reply-schemas.ts';
import { type Problem, problem } from '../reply-schemas.ts';
import * as requests from '../request-schemas.ts';
import { noBody } from '../request-schemas.ts';
import { advice, adviceReply, queryStatistic, queryStatisticsReply, usageInterval, usageReply } from '../routes/insights.ts';
import { deletedQuery, savedQueries, savedQuery, saveQueryRequest } from '../routes/saved-queries.ts';
import { schemaReply, table } from '../routes/schema.ts';
import * as sessions from '../routes/sessions.ts';
import { JSON_SCHEMA_OPTIONS, type JsonSchema, plain, schemaOf } from '../validation.ts';

export interface MediaType {
  readonly schema: JsonSchema;
  readonly examples: Readonly<Record<string, { readonly value: unknown }>>;
}

export interface ResponseObject {
  readonly description: string;
  readonly headers?: Readonly<Record<string, { readonly description: string; readonly schema: JsonSchema }>>;
  readonly content: Readonly<Record<string, MediaType>>;
}

export interface Parameter {
  readonly name: string;
  readonly in: 'path' | 'query' | 'header';
  readonly required: boolean;
  readonly description?: string;
  readonly schema: JsonSchema;
}

export interface OperationObject {
  readonly operationId: string;
  readonly tags: readonly string[];
  readonly summary: string;
  readonly description?: string;
  readonly security: readonly Readonly<Record<string, readonly string[]>>[];
  readonly parameters?: readonly Parameter[];
  readonly requestBody?: { readonly required: boolean; readonly content: Readonly<Record<string, MediaType>> };
  readonly responses: Readonly<Record<string, ResponseObject>>;
}

/** The parts of OpenAPI 3.1 that describe this API. @see https://spec.openapis.org/oas/v3.1.1.html */
export interface OpenApiDocument {
  readonly openapi: '3.1.0';
  readonly info: {
    readonly title: string;
    readonly version: string;
    readonly description: string;
    readonly license: { readonly name: string; readonly identifier: string };
  };
  readonly servers: readonly { readonly url: string }[];
  readonly tags: readonly { readonly name: string }[];
  readonly paths: Readonly<Record<string, Readonly<Record<string, OperationObject>>>>;
  readonly components: {
    readonly securitySchemes: Readonly<Record<string, { readonly type: 'http'; readonly scheme: 'bearer'; readonly description: string }>>;
    readonly schemas: Readonly<Record<string, JsonSchema>>;
  };
  /** All errors, by code. */
  readonly 'x-errors': Readonly<Record<string, { readonly status: number; readonly title: string; readonly retryable: boolean }>>;
}

const DESCRIPTION =
  'SQL over HTTP for one organization, with the API key that also opens the PostgreSQL wire door. Send the key as "Authorization: Bearer <API key>". Every error is a problem document (RFC 9457); its code is stable, and retryable says whether the same request may be sent again as it is. If the organization has a limit for requests in a second, every reply says in RateLimit-Policy and RateLimit how many there may be and how many are left.';

/** Errors that are not listed by operations. */
const ANYWHERE: readonly ErrorCode[] = [
  'misdirected_request',
  'not_found',
  'method_not_allowed',
  'malformed_request',
  'request_timeout',
  'headers_too_large',
];

/** The whole API, made from its operations. */
export function openApiDocument(operations: readonly Operation[]): OpenApiDocument {
  const paths: Record<string, Record<string, OperationObject>> = {};
  for (const operation of operations) {
    paths[operation.path] = { ...paths[operation.path], [operation.method.toLowerCase()]: operationObject(operation) };
  }
  const codes = [...new Set([...operations.flatMap(errorsOf), ...ANYWHERE])].sort();
  return {
    openapi: '3.1.0',
    info: { title: 'Postern', version: '1', description: DESCRIPTION, license: { name: 'Apache 2.0', identifier: 'Apache-2.0' } },
    servers: [{ url: '/' }],
    tags: [...new Set(operations.map(({ tag }) => tag))].map((name) => ({ name })),
    paths,
    components: {
      securitySchemes: { apiKey: { type: 'http', scheme: 'bearer', description: 'The API key of the organization (pst_…)' } },
      schemas: referred({ ...schemasOf(REQUESTS, 'input'), ...schemasOf(REPLIES, 'output') }, paths),
    },
    'x-errors': Object.fromEntries(codes.map((code) => [code, errorEntry(ERRORS[code])])),
  };
}

/** The document with every component in the place of the references to it. None has itself in it. */
export function inlined(document: OpenApiDocument): OpenApiDocument {
  const { schemas } = document.components;
  const inPlace = (value: unknown): unknown => {
    if (typeof value !== 'object' || value === null) return value;
    if (Array.isArray(value)) return value.map(inPlace);
    const { $ref, ...others } = value as { readonly $ref?: unknown };
    const component = typeof $ref === 'string' ? schemas[$ref.slice(reference('').length)] : undefined;
    return Object.fromEntries(Object.entries({ ...component, ...others }).map(([name, member]) => [name, inPlace(member)]));
  };
  return inPlace(document) as OpenApiDocument;
}

function operationObject(operation: Operation): OperationObject {
  const { operationId, tag, summary, description, needsKey, body, bodyExample } = operation;
  const parameters = parametersOf(operation);
  return {
    operationId,
    tags: [tag],
    summary,
    ...(description === undefined ? {} : { description }),
    security: needsKey ? [{ apiKey: [] }] : [],
    ...(parameters.length === 0 ? {} : { parameters }),
    ...(body === noBody
      ? {}
      : { requestBody: { required: !body.safeParse(undefined).success, content: json(named(body, 'input'), bodyExample) } }),
    responses: {
      ...replies(operation.replies),
      ...(operation.method !== 'GET' || operation.headers?.['If-None-Match'] === undefined
        ? {}
        : { 304: { description: 'The document is the one in If-None-Match.', content: {} } }),
      ...(operation.ownErrors === undefined ? problems(operation) : replies(operation.ownErrors)),
    },
  };
}

function replies(byStatus: Operation['replies']): Record<string, ResponseObject> {
  return Object.fromEntries(Object.entries(byStatus).map(([status, reply]) => [status, replyObject(reply)]));
}

function replyObject({ description, schema, example, headers, lines, csv }: ReplyDescription): ResponseObject {
  const described = Object.entries(headers ?? {}).map(([name, text]) => [name, { description: text, schema: { type: 'string' } }] as const);
  return {
    description,
    ...(described.length === 0 ? {} : { headers: Object.fromEntries(described) }),
    content: { ...json(named(schema, 'output'), example), ...(lines === undefined ? {} : { [LINES_TYPE]: linesOf(lines) }), ...csvOf(csv) },
  };
}

function csvOf(value: string | undefined): Record<string, MediaType> {
  return value === undefined ? {} : { 'text/csv': { schema: { type: 'string' }, examples: { example: { value } } } };
}

/** A reply with one document a line; the schema is that of a line. */
function linesOf({ schema, example }: NonNullable<ReplyDescription['lines']>): MediaType {
  const value = example.map((line) => `${JSON.stringify(line)}\n`).join('');
  return { schema: named(schema, 'output'), examples: { example: { value } } };
}

/** One response for each status, with an example for each error that has it. */
function problems(operation: Operation): Record<string, ResponseObject> {
  const codes = errorsOf(operation);
  const statuses = [...new Set(codes.map((code) => ERRORS[code].status))];
  return Object.fromEntries(
    statuses.map((status) => {
      const ofStatus = codes.filter((code) => ERRORS[code].status === status);
      return [status, problemResponse(status, ofStatus, operation)];
    }),
  );
}

function problemResponse(status: number, codes: readonly ErrorCode[], operation: Operation): ResponseObject {
  const examples = Object.fromEntries(codes.map((code) => [code, { value: exampleProblem(code, operation) }]));
  return {
    description: `${STATUS_CODES[status] ?? 'Error'}: ${codes.join(', ')}`,
    content: { 'application/problem+json': { schema: named(problem, 'output'), examples } },
  };
}

function errorsOf({ errors, needsKey, scope, path, body, ownErrors }: Operation): ErrorCode[] {
  if (ownErrors !== undefined) return [];
  const key: ErrorCode[] = needsKey
    ? ['unauthorized', 'key_revoked', 'not_allowed', 'organization_suspended', 'too_many_requests', 'rate_limited']
    : [];
  const more: ErrorCode[] = [
    ...(scope === undefined ? [] : (['forbidden'] as const)),
    ...(path.includes('{') ? (['not_found'] as const) : []),
  ];
  const withBody: ErrorCode[] = body === noBody ? [] : ['unsupported_media_type', 'payload_too_large'];
  return [...new Set<ErrorCode>(['invalid_request', ...withBody, ...key, ...more, ...errors, 'not_ready', 'shutting_down', 'internal'])];
}

function errorEntry({ status, title, retryable }: ErrorShape) {
  return { status, title, retryable: retryable === true };
}

function exampleProblem(code: ErrorCode, { path }: Operation): Problem {
  const { status, title, retryable } = ERRORS[code];
  const text = title.toLowerCase();
  return {
    type: `/docs#error-${code}`,
    title,
    status,
    detail: text,
    instance: path,
    code,
    error: title,
    message: text,
    requestId: '5f0d7a52-3d3f-4a44-9a0e-7c1f6a2f5f6e',
    retryable: retryable === true,
  };
}

function parametersOf({ path, query, headers = {} }: Operation): Parameter[] {
  const named = [...path.matchAll(/\{(\w+)\}/g)].map(
    ([, name = '']) => ({ name, in: 'path', required: true, schema: { type: 'string' } }) as const,
  );
  return [...named, ...parametersIn('query', query), ...parametersIn('header', z.strictObject(headers))];
}

function parametersIn(place: Parameter['in'], values: z.ZodType): Parameter[] {
  const { properties = {}, required = [] } = schemaOf(values, 'input');
  return Object.entries(properties).map(([name, property]) => {
    const { description, ...schema } = typeof property === 'boolean' ? {} : property;
    return { name, in: place, required: required.includes(name), ...(description === undefined ? {} : { description }), schema };
  });
}

function json(schema: JsonSchema, example: unknown): Record<string, MediaType> {
  return { 'application/json': { schema, examples: example === undefined ? {} : { example: { value: example } } } };
}

const reference = (id: string) => `#/components/schemas/${id}`;

/** A reference to the component that this schema is. */
function named(schema: z.ZodType, io: 'input' | 'output'): JsonSchema {
  const { id } = (io === 'input' ? REQUESTS : REPLIES).get(schema) ?? {};
  return id === undefined ? schemaOf(schema, io) : { $ref: reference(id) };
}

/** Without the schemas of operations that this service has not got. */
function referred(schemas: Readonly<Record<string, JsonSchema>>, paths: OpenApiDocument['paths']): Record<string, JsonSchema> {
  const text = JSON.stringify([schemas, paths]);
  return Object.fromEntries(Object.entries(schemas).filter(([id]) => text.includes(JSON.stringify(reference(id)))));
}

/** The schemas of a registry, in which they refer to each other by their ids. */
function schemasOf(registry: typeof REQUESTS, io: 'input' | 'output'): Record<string, JsonSchema> {
  const { schemas } = z.toJSONSchema(registry, { io, uri: reference, ...JSON_SCHEMA_OPTIONS });
  return Object.fromEntries(Object.entries(schemas).map(([id, schema]) => [id, plain(schema)]));
}

/*
 * The names of schemas in the OpenAPI document, which are the names of types in generated clients. Where one schema has another in
 * it, the document refers to it by its name.
 */

const REQUESTS = registryOf({
  SignUpRequest: requests.signupRequest,
  OrganizationChanges: requests.organizationChanges,
  OrganizationDeletion: requests.organizationDeletion,
  KeyRotationRequest: requests.rotateKeyRequest,
  ConsoleSignIn: requests.consoleSignInRequest,
  KeyRequest: requests.createKeyRequest,
  KeyChange: requests.updateKeyRequest,
  CloneRequest: requests.createCloneRequest,
  QueryRequest: requests.queryRequest,
  TransactionRequest: requests.transactionRequest,
  MigrationRequest: requests.migrationRequest,
  MigrationRollback: requests.rollbackRequest,
  QueryToSave: saveQueryRequest,
  AuditSearch: requests.auditSearch,
  NeonQuery: neon.neonQuery,
  NeonBatch: neon.neonBatch,
  NeonRequest: neon.neonRequest,
});

const REPLIES = registryOf({
  SignedUp: replySchemas.signupReply,
  Caller: replySchemas.meReply,
  Organization: replySchemas.organizationReply,
  DeletedOrganization: replySchemas.organizationDeletionReply,
  ApiKey: replySchemas.key,
  ApiKeyList: replySchemas.keysReply,
  CreatedKey: replySchemas.createdKeyReply,
  RevokedKey: replySchemas.revokedKeyReply,
  Clone: replySchemas.clone,
  CloneList: replySchemas.clonesReply,
  CreatedClone: replySchemas.createdCloneReply,
  Connection: replySchemas.connection,
  RotatedKey: replySchemas.rotateKeyReply,
  QueryResult: replySchemas.queryReply,
  Field: replySchemas.field,
  Warning: replySchemas.warning,
  QueryLine: replySchemas.queryLine,
  TransactionResult: replySchemas.transactionReply,
  Migration: replySchemas.migration,
  MigrationResult: replySchemas.migrationReply,
  MigrationWarning: replySchemas.migrationWarning,
  MigrationRollbackResult: replySchemas.rollbackReply,
  MigrationList: replySchemas.migrationsReply,
  Schema: schemaReply,
  Table: table,
  SavedQuery: savedQuery,
  SavedQueryList: savedQueries,
  DeletedQuery: deletedQuery,
  Session: sessions.session,
  SessionPin: sessions.pin,
  SessionList: sessions.sessionsReply,
  CanceledSession: sessions.canceledReply,
  EndedSession: sessions.endedReply,
  AuditEntry: replySchemas.auditEntry,
  AuditPage: replySchemas.auditReply,
  AuditVerification: replySchemas.auditVerifyReply,
  QueryStatistic: queryStatistic,
  QueryStatistics: queryStatisticsReply,
  UsageInterval: usageInterval,
  Usage: usageReply,
  Advice: advice,
  AdviceList: adviceReply,
  Health: replySchemas.healthReply,
  NeonResult: neon.neonResult,
  NeonReply: neon.neonReply,
  NeonError: neon.neonError,
  Problem: replySchemas.problem,
});

function registryOf(schemas: Readonly<Record<string, z.ZodType>>): z.core.$ZodRegistry<{ id: string }> {
  const registry = z.registry<{ id: string }>();
  for (const [id, schema] of Object.entries(schemas)) registry.add(schema, { id });
  return registry;
}
