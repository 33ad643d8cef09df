import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { type ClientRequest, type IncomingMessage, request } from 'node:http';
import pg from 'pg';
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest';
import type { TestOrganization } from '../support/doors.ts';
import { eventually } from '../support/eventually.ts';
import { type Installation, makeInstallation, type PosternProcess } from '../support/process.ts';
import { testVariables } from '../support/service.ts';

const MIB = 1_048_576;

let installation: Installation;
let postern: PosternProcess;
let acme: TestOrganization;
beforeAll(async () => {
  installation = await makeInstallation();
  postern = await installation.start({ ...testVariables(), POSTERN_HTTP_SEND_TIMEOUT_MS: '10000' });
  acme = await postern.signUp();
});
afterAll(() => installation.remove());

/** Resident memory of the process, and the most that it ever was. */
async function memory(): Promise<{ now: number; peak: number }> {
  const status = await readFile(`/proc/${postern.pid}/status`, 'utf8');
  const bytes = (name: string) => Number(new RegExp(`^${name}:\\s+(\\d+) kB$`, 'm').exec(status)?.[1]) * 1_024;
  return { now: bytes('VmRSS'), peak: bytes('VmHWM') };
}

async function query(sql: string, accept: string): Promise<{ readonly call: ClientRequest; readonly reply: IncomingMessage }> {
  const headers = { authorization: `Bearer ${acme.apiKey}`, 'content-type': 'application/json', accept };
  const call = request(`${postern.httpUrl}/api/query`, { method: 'POST', headers });
  call.end(JSON.stringify({ sql }));
  const [reply] = (await once(call, 'response')) as [IncomingMessage];
  return { call, reply };
}

/** The wait events of statements with this mark in them. */
async function waits(mark: string): Promise<unknown[]> {
  const operator = new pg.Client({ connectionString: inject('clusterUrl') });
  await operator.connect();
  try {
    const text = "SELECT wait_event FROM pg_stat_activity WHERE usename = $1 AND state = 'active' AND query LIKE $2";
    return (await operator.query({ text, values: [acme.id, `%${mark}%`], rowMode: 'array' })).rows.flat();
  } finally {
    await operator.end();
  }
}

describe('200 MB', () => {
  it.each([
    ['application/json', (end: string) => JSON.parse(end.slice(end.lastIndexOf('],') + 2).replace(/^/, '{'))],
    ['application/x-ndjson', (end: string) => JSON.parse(end.trimEnd().split('\n').at(-1) ?? '').complete],
  ])('as %s cost less than 64 MB of memory', async (accept, endOf) => {
    await (await query('SELECT 1', accept)).reply.toArray();
    const before = await memory();
    const { reply } = await query("SELECT n, repeat('x', 1000) AS x FROM generate_series(1, 200000) n", accept);
    let bytes = 0;
    let end = '';
    for await (const chunk of reply) {
      bytes += chunk.length;
      end = (end + chunk.toString('latin1')).slice(-2_000);
    }
    expect(bytes).toBeGreaterThan(200_000_000);
    expect(endOf(end)).toMatchObject({ rowCount: 200_000, command: 'SELECT' });
    const { peak } = await memory();
    expect((peak - before.now) / MIB).toBeLessThan(64);
  });

  it('that nobody reads cost no more, and end with the send timeout', async () => {
    const before = await memory();
    const { call, reply } = await query("SELECT repeat('x', 1000) AS unread, generate_series(1, 200000)", 'application/json');
    reply.on('error', () => {});
    reply.pause();
    await eventually('the backend waits for its reader', async () => (await waits('unread'))[0] === 'ClientWrite');
    expect(((await memory()).now - before.now) / MIB).toBeLessThan(64);
    await eventually('the statement is cancelled', async () => (await waits('unread')).length === 0);
    call.destroy();
  });
});

it('a client that goes away in the middle has its statement cancelled', async () => {
  const { call, reply } = await query("SELECT repeat('x', 1000) AS abandoned, generate_series(1, 100000000)", 'application/x-ndjson');
  await once(reply, 'data');
  call.destroy();
  await eventually('the statement is cancelled', async () => (await waits('abandoned')).length === 0);
});
