import type { FastifyRequest } from 'fastify';
import * as z from 'zod';
import { SESSION_STATES, type SessionSignal } from '../../src/router/sessions.ts';
import { RelationNames } from '../../src/sql/relation-names.ts';
import { type Endpoint, endpoint, type Operation, type RouteContext } from '../operation.ts';
import { sendJson } from '../replies.ts';
import { tenantOf } from '../request-context.ts';
import { noBody, noQuery } from '../request-schemas.ts';
import { sessionNumberOf } from '../requests-in-progress.ts';

const instant = (description: string) => z.string().meta({ format: 'date-time', description });
const sessionIdField = z.string().describe('Names it in the calls that cancel or end it');

export const pin = z.object({
  reason: z.string().describe('transaction, listen, temp, advisory_lock, …'),
  explanation: z.string().describe('What that is, and until when the session keeps its backend'),
});

export const session = z.object({
  sessionId: sessionIdField,
  door: z.enum(['wire', 'http']).describe('wire: a connection, over TCP or a WebSocket; http: a request that is being served'),
  keyId: z.string().describe('The key that it was opened with'),
  keyPrefix: z.string(),
  sourceIp: z.string(),
  applicationName: z.string().nullable(),
  userAgent: z.string().nullable(),
  isEncrypted: z.boolean().describe('Whether the connection to Postern uses TLS'),
  processId: z.int().nullable().describe('What pg_backend_pid() says in it; null for a request over HTTP'),
  connectedAt: instant('Since when it is there'),
  state: z.enum(SESSION_STATES),
  stateSince: instant('Since when it is in that state'),
  pins: z.array(pin).describe('Why it keeps a backend to itself'),
  statement: z
    .object({
      sql: z.string().describe('At most 1,000 characters, with secrets masked as in the audit log'),
      startedAt: instant('When it was sent to the database'),
      runningMs: z.int(),
    })
    .nullable()
    .describe('What it runs; null if that is nothing, or not known'),
  waitsFor: z
    .object({
      lock: z
        .string()
        .describe(
          'relation, transactionid, tuple, advisory, …, as locktype of pg_locks. A row is waited for as the transactionid of who has it',
        ),
      mode: z.string().describe('AccessExclusiveLock, ShareLock, …'),
      relation: z
        .string()
        .nullable()
        .describe('The table or index, of whose row it may be; null: it is none, or no backend was free to ask for its name'),
      since: instant('Since when it waits; null in the first moment').nullable(),
      isHeldElsewhere: z
        .boolean()
        .describe('It also waits for something that is no session of the organization, such as autovacuum or a prepared transaction'),
    })
    .nullable()
    .describe('The lock that it waits for; null if there is none'),
  blockedBy: z
    .array(z.string())
    .describe(
      'The ids of the sessions that it waits for, also of other keys; then those that these wait for, to the last, which waits for none',
    ),
  isOwn: z.boolean().describe('It is the request that asks'),
});

export const sessionsReply = z.object({
  sessions: z.array(session).describe('The oldest first, at most 1,000'),
  isComplete: z.boolean().describe('false: there are more, or a process has not answered within a second'),
  areWaitsKnown: z.boolean().describe('false: the database server has not said within a second which sessions wait for locks'),
  processes: z.object({ asked: z.int(), answered: z.int() }).describe('The processes of Postern that serve the organization'),
});

export const canceledReply = z.object({
  sessionId: sessionIdField,
  canceled: z.literal(true).describe('The database has been asked to cancel what it runs'),
});

export const endedReply = z.object({ sessionId: sessionIdField, endedAt: instant('When it was ended') });

const TAG = 'Sessions';
const EXAMPLE = {
  sessionId: 'ses_1b5c09d27f3a4e60',
  door: 'wire',
  keyId: 'key_8h2f6d0s4p1w',
  keyPrefix: 'pst_4fT9aB',
  sourceIp: '203.0.113.7',
  applicationName: 'psql',
  userAgent: null,
  isEncrypted: true,
  processId: 2134527584,
  connectedAt: '2025-01-31T09:12:00.000Z',
  state: 'active',
  stateSince: '2025-01-31T09:30:00.123Z',
  pins: [{ reason: 'transaction', explanation: 'It is in a transaction, and keeps its backend until the transaction ends.' }],
  statement: { sql: 'update orders set total = total * 1.1', startedAt: '2025-01-31T09:30:00.123Z', runningMs: 4_210 },
  waitsFor: {
    lock: 'transactionid',
    mode: 'ShareLock',
    relation: 'public.orders',
    since: '2025-01-31T09:30:00.125Z',
    isHeldElsewhere: false,
  },
  blockedBy: ['ses_1b5c09d25d0c11f2'],
  isOwn: false,
} as const;
const { sessionId } = EXAMPLE;

const list = {
  method: 'GET',
  path: '/api/sessions',
  action: 'sessions.list',
  operationId: 'listSessions',
  tag: TAG,
  summary: 'List the sessions',
  description:
    'Connections to the wire door and requests over HTTP that are being served, in every process of Postern, with the locks that they wait for and the sessions that have them. An admin key sees those of all keys, any other key its own. Not recorded in the audit log unless it fails.',
  needsKey: true,
  query: noQuery,
  body: noBody,
  replies: {
    200: {
      description: 'The sessions.',
      schema: sessionsReply,
      example: { sessions: [EXAMPLE], isComplete: true, areWaitsKnown: true, processes: { asked: 1, answered: 1 } },
    },
  },
  errors: ['not_ready'],
} as const satisfies Operation;

const cancel = {
  method: 'POST',
  path: '/api/sessions/{sessionId}/cancel',
  action: 'sessions.cancel',
  operationId: 'cancelSession',
  tag: TAG,
  summary: 'Cancel what a session runs',
  description:
    'As pg_cancel_backend: the statement fails with 57014, and the session stays. A request over HTTP ends with statement_canceled. Whether something was running is not said.',
  needsKey: true,
  query: noQuery,
  body: noBody,
  replies: { 200: { description: 'It has been asked to.', schema: canceledReply, example: { sessionId, canceled: true } } },
  errors: ['not_ready'],
} as const satisfies Operation;

const end = {
  method: 'DELETE',
  path: '/api/sessions/{sessionId}',
  action: 'sessions.end',
  operationId: 'endSession',
  tag: TAG,
  summary: 'End a session',
  description:
    'As pg_terminate_backend: what it runs is rolled back, and its client gets 57P01. A request over HTTP ends with database_unavailable.',
  needsKey: true,
  query: noQuery,
  body: noBody,
  replies: {
    200: { description: 'It has ended.', schema: endedReply, example: { sessionId, endedAt: '2025-01-31T09:30:04.333Z' } },
  },
  errors: ['not_ready'],
} as const satisfies Operation;

export function sessionEndpoints({ sessions, router }: RouteContext): Endpoint[] {
  const names = new RelationNames(router);
  const signal = async (request: FastifyRequest, kind: SessionSignal) => {
    const { sessionId } = request.params as { readonly sessionId: string };
    // In the audit log it stands as a statement, like a change of a key.
    const command = kind === 'cancel' ? 'CANCEL SESSION' : 'END SESSION';
    request.call.statement = { sql: `${command} ${sessionId}`, command };
    await sessions.signal(tenantOf(request), sessionId, kind);
    return sessionId;
  };
  return [
    endpoint(list, async ({ request, reply }) => {
      const tenant = tenantOf(request);
      const { sessions: listed, ...rest } = await sessions.list(tenant);
      const ownId = sessions.idOf(sessionNumberOf(request.call));
      const oids = new Set(listed.flatMap(({ waitsFor }) => waitsFor?.relation ?? []));
      const relations = await names.find(tenant, [...oids]);
      const shown = listed.map(({ waitsFor, ...one }) => ({
        ...one,
        waitsFor: waitsFor && { ...waitsFor, relation: relations.get(waitsFor.relation ?? 0) ?? null },
        isOwn: one.sessionId === ownId,
      }));
      return sendJson(request, reply, { sessions: shown, ...rest });
    }),
    endpoint(cancel, async ({ request }) => ({ sessionId: await signal(request, 'cancel'), canceled: true })),
    endpoint(end, async ({ request }) => ({ sessionId: await signal(request, 'terminate'), endedAt: new Date().toISOString() })),
  ];
}
