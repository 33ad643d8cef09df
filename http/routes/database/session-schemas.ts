import { z } from 'zod';
import { SESSION_STATES } from '../../../src/router/sessions.ts';

const instant = (description: string) => z.string().meta({ format: 'date-time', description });
const sessionId = z.string().describe('Names it in the calls that cancel or end it');

export const pin = z.object({
  reason: z.string().describe('transaction, listen, temp, advisory_lock, …'),
  explanation: z.string().describe('What that is, and until when the session keeps its backend'),
});

export const session = z.object({
  sessionId,
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
  isOwn: z.boolean().describe('It is the request that asks'),
});

export const sessionsReply = z.object({
  sessions: z.array(session).describe('The oldest first, at most 1,000'),
  isComplete: z.boolean().describe('false: there are more, or a process has not answered within a second'),
  processes: z.object({ asked: z.int(), answered: z.int() }).describe('The processes of Postern that serve the organization'),
});

export const canceledReply = z.object({
  sessionId,
  canceled: z.literal(true).describe('The database has been asked to cancel what it runs'),
});

export const endedReply = z.object({ sessionId, endedAt: instant('When it was ended') });
