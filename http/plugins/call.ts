import type { IncomingMessage } from 'node:http';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { Observe, ObservedStatement, Origin, Outcome } from '../../src/observation.ts';
import { timeOrderedUuid } from '../../src/random.ts';
import { Departure } from '../../src/router/departure.ts';
import type { Tenant } from '../../src/router/tenant.ts';
import type { StatementOutcome } from '../../src/sql/layout.ts';
import { renderError } from '../errors.ts';

/** What is known of a call while it runs: who, what, and how it ends. */
export interface Call {
  /** Authentication may learn more of it. */
  origin: Origin;
  readonly startedAt: number;
  /** Happens when the client goes before its reply is whole. */
  readonly departure: Departure;
  /** The whole reply has been handed to the network. */
  whole: boolean;
  /** Set by authentication. */
  tenant: Tenant | undefined;
  /** Gives back the place that admission has given. */
  leave: (() => void) | undefined;
  /** Set by routes that run SQL. */
  statement: ObservedStatement | undefined;
  /** SHA-256 of everything that it asks for, where it has an Idempotency-Key. */
  fingerprint: string | undefined;
  /** It is carried out once, however often it is sent. */
  isRepeatable: boolean;
  /** All of it runs in one transaction. */
  atomic: boolean | undefined;
  /** The operation at work. */
  work: Promise<unknown> | undefined;
  /** How the statement has ended, once its reply is there as a whole. */
  outcome: StatementOutcome | undefined;
  /** How the statement ends where the reply is streamed, which is after its first bytes. */
  ended: Promise<StatementOutcome> | undefined;
  /** SQLSTATE of the error that was answered. */
  sqlstate: string | undefined;
}

declare module 'fastify' {
  interface FastifyRequest {
    call: Call;
  }
  interface FastifyContextConfig {
    /** Name of the operation in observations and in the audit log. */
    action?: string;
  }
}

const MAX_USER_AGENT = 500;

/** An inbound X-Request-Id is kept when it can do no harm in logs and headers. */
export function requestIdOf(request: IncomingMessage): string {
  const given = request.headers['x-request-id'];
  return typeof given === 'string' && /^[A-Za-z0-9._-]{1,128}$/.test(given) ? given : timeOrderedUuid();
}

/** Opens a {@link Call} for each request and tells what became of those that reached an operation. */
export function followCalls(
  app: FastifyInstance,
  observe: Observe,
  clientAddress: (socketAddress: string, forwardedFor?: string) => string,
): void {
  const untold = new Set<Promise<void>>();
  app.decorateRequest('call');
  app.addHook('onRequest', (request, reply, done) => {
    const call = openCall(originOf(request, clientAddress));
    const { action } = request.routeOptions.config;
    request.call = call;
    const { socket } = request.raw;
    // A reply also counts as finished when its connection was destroyed with the rest of it unsent.
    reply.raw.on('finish', () => {
      call.whole = !socket.destroyed;
    });
    // Fastify's own onResponse is silent about replies that broke off.
    reply.raw.on('close', () => {
      if (!call.whole) call.departure.happen();
      call.leave?.();
      if (action === undefined) return;
      if (call.outcome !== undefined) {
        tell(observe, action, call, reply, call.outcome);
        return;
      }
      const telling = tellLater(observe, action, call, reply).finally(() => untold.delete(telling));
      untold.add(telling);
    });
    done();
  });
  // A statement may end after its reply; what reads observations is closed after the door.
  app.addHook('onClose', async () => {
    await Promise.all(untold);
  });
}

async function tellLater(observe: Observe, action: string, call: Call, reply: FastifyReply): Promise<void> {
  tell(observe, action, call, reply, await endOf(call));
}

function tell(observe: Observe, action: string, call: Call, reply: FastifyReply, ended: StatementOutcome | undefined): void {
  const { tenant, statement, origin } = call;
  try {
    observe({
      name: 'http.request',
      action,
      origin,
      actor: tenant && actorOf(tenant),
      statement: statement && observed(statement, ended),
      outcome: outcomeOf(call, reply, ended),
    });
  } catch (cause) {
    observe({ name: 'service.failure', message: `the end of ${action} could not be told`, cause });
  }
}

function originOf(request: FastifyRequest, clientAddress: (socketAddress: string, forwardedFor?: string) => string): Origin {
  const { headers, socket, id } = request;
  const forwardedFor = headers['x-forwarded-for'];
  return {
    surface: 'http',
    sourceIp: clientAddress(socket.remoteAddress ?? '', typeof forwardedFor === 'string' ? forwardedFor : undefined),
    requestId: id,
    userAgent: headers['user-agent']?.slice(0, MAX_USER_AGENT),
  };
}

/** With all that it may ever have from the beginning: the engine deals slowly with objects that grow. */
function openCall(origin: Origin): Call {
  return {
    origin,
    startedAt: performance.now(),
    departure: new Departure(),
    whole: false,
    tenant: undefined,
    leave: undefined,
    statement: undefined,
    fingerprint: undefined,
    isRepeatable: false,
    atomic: undefined,
    work: undefined,
    outcome: undefined,
    ended: undefined,
    sqlstate: undefined,
  };
}

/** The statement's outcome; a failure that was too late for the reply leaves its SQLSTATE in the call. */
async function endOf(call: Call): Promise<StatementOutcome | undefined> {
  try {
    await call.work;
    return await call.ended;
  } catch (error) {
    const { sqlstate } = renderError(error, { requestId: '', path: '', withCredentials: true }).problem;
    if (sqlstate !== undefined) call.sqlstate = sqlstate;
    return undefined;
  }
}

function actorOf({ organization, key }: Tenant) {
  return { organizationId: organization.id, keyId: key.id, keyPrefix: key.prefix };
}

function observed({ sql, command, paramCount }: ObservedStatement, ended: StatementOutcome | undefined): ObservedStatement {
  return { sql, command: ended?.command || command, paramCount };
}

function outcomeOf(call: Call, reply: FastifyReply, ended: StatementOutcome | undefined): Outcome {
  const httpStatus = reply.raw.headersSent ? reply.statusCode : 499;
  const ok = call.whole && httpStatus < 400 && call.sqlstate === undefined;
  return {
    status: ok ? 'ok' : 'error',
    httpStatus,
    durationMs: Math.round((performance.now() - call.startedAt) * 1_000) / 1_000,
    sqlstate: call.sqlstate,
    rowCount: ended?.rowCount ?? undefined,
  };
}
