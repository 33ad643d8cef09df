import { once } from 'node:events';
import { connect } from 'node:net';
import pg from 'pg';
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest';
import { preferredForm } from '../../http/headers.ts';
import { problem, queryLine } from '../../http/reply-schemas.ts';
import type { Observation } from '../../src/observation.ts';
import { eventually } from '../support/eventually.ts';
import { startTestService, type TestOrganization, type TestService } from '../support/service.ts';

let service: TestService;
let acme: TestOrganization;
beforeAll(async () => {
  service = await startTestService({ POSTERN_HTTP_SEND_TIMEOUT_MS: '5000' });
  acme = await service.signUp();
});
afterAll(() => service.close());

const query = (body: object, headers: Record<string, string> = {}) =>
  fetch(`${service.httpUrl}/api/query`, {
    method: 'POST',
    headers: { authorization: `Bearer ${acme.apiKey}`, 'content-type': 'application/json', accept: 'application/x-ndjson', ...headers },
    body: JSON.stringify(body),
  });

type Request = Extract<Observation, { name: 'http.request' }>;

async function outcomeOf(requestId: string): Promise<Request['outcome'] | undefined> {
  const isIt = (observation: Observation): observation is Request =>
    observation.name === 'http.request' && observation.origin.requestId === requestId;
  await eventually(`the end of call ${requestId}`, () => service.observations.some(isIt));
  return service.observations.find(isIt)?.outcome;
}

/** What statements with this mark in them wait for; nothing where none runs. */
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

describe('a result a line', () => {
  it('has its fields first, and then row after row to the end', async () => {
    const reply = await query({ sql: 'select n, $1::jsonb as doc from generate_series(1, 2) n', params: [{ a: [1, null] }] });
    expect([reply.status, reply.headers.get('content-type')]).toEqual([200, 'application/x-ndjson']);
    const lines = (await reply.text())
      .trimEnd()
      .split('\n')
      .map((line) => queryLine.parse(JSON.parse(line)));
    expect(lines).toEqual([
      {
        fields: [
          { name: 'n', dataTypeID: 23, dataType: 'int4' },
          { name: 'doc', dataTypeID: 3802, dataType: 'jsonb' },
        ],
        rowAsArray: false,
      },
      { row: { n: 1, doc: { a: [1, null] } } },
      { row: { n: 2, doc: { a: [1, null] } } },
      { complete: { rowCount: 2, command: 'SELECT', durationMs: expect.any(Number) } },
    ]);
  });

  it('may have rows as arrays', async () => {
    const text = await (await query({ sql: 'select 1 as a, 2 as a', rowMode: 'array' })).text();
    expect(text.split('\n')[1]).toBe('{"row":[1,2]}');
  });

  it('that fails at once is a problem document with a status of its own', async () => {
    const reply = await query({ sql: 'select 1/0' });
    expect([reply.status, reply.headers.get('content-type')]).toEqual([400, 'application/problem+json']);
    expect(await reply.json()).toMatchObject({ code: 'sql_error', sqlstate: '22012' });
  });

  it('that fails on the way ends with the problem', async () => {
    const sql = 'select g, 1 / (100000 - g) as inverse from generate_series(1, 200000) g';
    const reply = await query({ sql }, { 'x-request-id': 'broken-line' });
    const lines = (await reply.text()).split('\n');
    expect(lines.at(-1)).toBe('');
    const last = JSON.parse(lines.at(-2) ?? '');
    expect(problem.strict().parse(last.error)).toMatchObject({
      status: 400,
      code: 'sql_error',
      sqlstate: '22012',
      requestId: 'broken-line',
    });
    expect(lines.length).toBeGreaterThan(10_000);
    // To expect something of each of a hundred thousand lines takes seconds.
    expect(lines.slice(1, -2).filter((line) => Object.keys(JSON.parse(line)).join() !== 'row')).toEqual([]);
    expect(await outcomeOf('broken-line')).toMatchObject({ status: 'error', httpStatus: 200, sqlstate: '22012' });
  });

  it('that takes too long on the way, too', async () => {
    const sql = "select repeat('x', 1000), case when g > 2000 then pg_sleep(0.01) end from generate_series(1, 100000) g";
    const lines = (await (await query({ sql, timeoutMs: 5_000 })).text()).trimEnd().split('\n');
    expect(JSON.parse(lines.at(-1) ?? '')).toMatchObject({ error: { status: 504, code: 'statement_timeout' } });
  });
});

describe('comma-separated values', () => {
  const CSV = { accept: 'text/csv' };
  const TYPE = 'text/csv; charset=utf-8; header=present';

  type Copying = pg.Client & { readonly connection: { on(name: 'copyData', took: (message: { readonly chunk: Buffer }) => void): void } };

  /** What Postgres itself writes, through the wire door. */
  async function copied(sql: string): Promise<string> {
    const client = await service.connect(acme);
    const chunks: Buffer[] = [];
    (client as Copying).connection.on('copyData', ({ chunk }) => chunks.push(Buffer.from(chunk)));
    // As over HTTP, where instants are in UTC.
    await client.query("SET TimeZone = 'UTC'");
    await client.query(`COPY (${sql}) TO STDOUT (FORMAT csv, HEADER)`);
    await client.end();
    return Buffer.concat(chunks).toString();
  }

  it.each([
    [`select 1 as a, null as b, '' as c, 'x,y' as d, 'say "hi"' as e, E'two\\nlines' as f, E'\\r' as g, ' ü ' as h`],
    [`select true as t, array[1, null, 2] as a, '{"k": "v"}'::jsonb as j, '\\x00ff'::bytea as b, timestamptz '2025-01-31 09:30+01' as i`],
    [`select '\\.' as only`],
    [`select '\\.' as one, '\\.' as two`],
    [`select '' as "a,b" union all select null union all select 'x'`],
    [`select 1 as "say ""hi""", 2 as "say ""hi"""`],
    [`select n, case when n % 3 = 0 then null else repeat('ab,', n % 50) end as text from generate_series(1, 20000) n`],
    [`select repeat('x', 300000) as long, repeat(E'q"\\n', 100000) as quoted, null as nothing, '' as blank`],
  ])('of %.70s are what COPY writes', async (sql) => {
    const reply = await query({ sql }, CSV);
    expect([reply.status, reply.headers.get('content-type')]).toEqual([200, TYPE]);
    const [text, wanted] = [await reply.text(), await copied(sql)];
    if (wanted.length < 1_000) expect(text).toBe(wanted);
    else expect(text === wanted).toBe(true);
  });

  it('are none for a command without rows, and the same again with an Idempotency-Key', async () => {
    expect(await (await query({ sql: 'create temporary table gone (a int)' }, CSV)).text()).toBe('');
    for (const replayed of [null, 'true']) {
      const reply = await query({ sql: 'select $1::int as a', params: [1] }, { ...CSV, 'idempotency-key': 'csv-1' });
      expect([reply.headers.get('content-type'), reply.headers.get('idempotency-replayed')]).toEqual([TYPE, replayed]);
      expect(await reply.text()).toBe('a\n1\n');
    }
  });

  it('that fail at once are a problem document', async () => {
    const reply = await query({ sql: 'select 1/0' }, CSV);
    expect([reply.status, reply.headers.get('content-type')]).toEqual([400, 'application/problem+json']);
  });

  it('that fail on the way end with the problem, and without the end of the reply', async () => {
    const sql = 'select g, 1 / (100000 - g) as inverse from generate_series(1, 200000) g';
    const reply = await query({ sql }, { ...CSV, 'accept-encoding': 'identity', 'x-request-id': 'broken-csv' });
    const received: Uint8Array[] = [];
    const reading = async () => {
      for await (const chunk of reply.body ?? []) received.push(chunk);
    };
    await expect(reading()).rejects.toThrow('terminated');
    const lines = Buffer.concat(received).toString().split('\n');
    expect(lines.at(-1)).toBe('');
    expect(JSON.parse(lines.at(-2) ?? '')).toMatchObject({ error: { code: 'sql_error', sqlstate: '22012', requestId: 'broken-csv' } });
    expect(lines.length).toBeGreaterThan(10_000);
    expect(lines.slice(1, -2).filter((line) => !/^\d+,[01]$/.test(line))).toEqual([]);
    expect(await outcomeOf('broken-csv')).toMatchObject({ status: 'error', httpStatus: 200, sqlstate: '22012' });
  });
});

describe('a client that stops reading', () => {
  it.concurrent.each([
    ['application/x-ndjson', 'stuck_lines'],
    ['application/json', 'stuck_json'],
    ['text/csv', 'stuck_csv'],
  ])('%s stops the backend, until it is given up and its statement cancelled', async (accept, mark) => {
    const socket = connect(Number(new URL(service.httpUrl).port), '127.0.0.1');
    await once(socket, 'connect');
    const text = JSON.stringify({ sql: `select repeat('x', 1000) as ${mark}, generate_series(1, 100000000)` });
    socket.pause();
    socket.write(
      `POST /api/query HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${acme.apiKey}\r\nAccept: ${accept}\r\nX-Request-Id: ${mark}\r\nContent-Type: application/json\r\nContent-Length: ${text.length}\r\n\r\n${text}`,
    );
    await eventually('the backend waits for its reader', async () => (await waits(mark))[0] === 'ClientWrite');
    expect(await outcomeOf(mark)).toMatchObject({ status: 'error', httpStatus: 200, sqlstate: '57014' });
    await eventually('the statement is cancelled', async () => (await waits(mark)).length === 0);
    socket.destroy();
  });
});

describe('the form of a result is for those who', () => {
  it.each([
    ['application/x-ndjson', 'lines'],
    ['Application/X-NDJSON', 'lines'],
    ['application/x-ndjson;q=0.5, */*;q=0.1', 'lines'],
    ['text/plain, application/x-ndjson; q=0.2', 'lines'],
    ['application/json;q=0.5, application/x-ndjson', 'lines'],
    ['application/json, application/x-ndjson', 'json'],
    ['application/json, application/x-ndjson;q=0.9', 'json'],
    ['application/x-ndjson;q=0', 'json'],
    ['application/x-ndjson;q=nonsense', 'json'],
    ['application/json', 'json'],
    ['*/*', 'json'],
    ['', 'json'],
    [undefined, 'json'],
    ['text/csv', 'csv'],
    ['text/csv;header=present, */*', 'csv'],
    ['text/csv;q=0.9, application/x-ndjson', 'lines'],
    ['text/csv, application/json', 'json'],
  ])('accept %j: %s', (accept, form) => {
    expect(preferredForm(accept)).toBe(form);
  });
});
