import type pg from 'pg';
import type { JsonReply, TestOrganization, TestService } from '../support/service.ts';

/** What came back from either door: an error's SQLSTATE, or the last statement's rows. */
export interface Reply {
  /** 00000: it ran. */
  readonly sqlstate: string;
  readonly message: string;
  readonly rows: readonly (readonly (string | null)[])[];
  /** All of it, to be searched for what must not be there. */
  readonly whole: string;
}

export type Door = (service: TestService, organization: TestOrganization, statements: string | readonly string[]) => Promise<Reply>;

/** On a connection of its own. Several statements are one transaction. */
const wire: Door = async (service, organization, statements) => {
  const client = await service.connect(organization, { types: { getTypeParser: () => (text: string) => text } });
  try {
    if (typeof statements === 'string') return await replyOf(client, statements);
    await client.query('BEGIN');
    const replies: Reply[] = [];
    for (const sql of statements) replies.push(await replyOf(client, sql));
    return lastOf(replies);
  } finally {
    await client.end();
  }
};

async function replyOf(client: pg.Client, text: string): Promise<Reply> {
  try {
    const { rows } = await client.query<(string | null)[]>({ text, rowMode: 'array' });
    return { sqlstate: '00000', message: '', rows, whole: JSON.stringify(rows) };
  } catch (error) {
    const { code = 'none', message } = error as Error & { code?: string };
    return { sqlstate: code, message, rows: [], whole: JSON.stringify({ ...(error as Error), message }) };
  }
}

/** What comes before the last has to go through: otherwise the attack has not taken place. */
function lastOf(replies: readonly Reply[]): Reply {
  const failed = replies.slice(0, -1).find(({ sqlstate }) => sqlstate !== '00000');
  const last = replies.at(-1);
  if (failed !== undefined || last === undefined) throw new Error(`the attack was not even tried: ${failed?.message}`);
  return last;
}

/** `POST /api/query`; several statements: `POST /api/transaction`. */
const http: Door = async (service, { apiKey: key }, statements) => {
  if (typeof statements === 'string') {
    return read(await service.call('POST', '/api/query', { key, body: { sql: statements, rowMode: 'array' } }), (body) => body.rows);
  }
  const body = { statements: statements.map((sql) => ({ sql })), rowMode: 'array' };
  const reply = await service.call('POST', '/api/transaction', { key, body });
  if (reply.status !== 200 && reply.body.statementIndex !== statements.length - 1) {
    throw new Error(`the attack was not even tried: ${reply.body.message}`);
  }
  return read(reply, ({ results }) => results.at(-1).rows);
};

function read({ status, body }: JsonReply, rowsOf: (body: JsonReply['body']) => unknown[][]): Reply {
  const whole = JSON.stringify(body);
  if (status !== 200) return { sqlstate: body.sqlstate ?? 'none', message: body.message, rows: [], whole };
  const rows = rowsOf(body).map((row) => row.map((value) => (value === null ? null : String(value))));
  return { sqlstate: '00000', message: '', rows, whole };
}

export const DOORS: Readonly<Record<'wire' | 'http', Door>> = { wire, http };
