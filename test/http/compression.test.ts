import { type IncomingMessage, request } from 'node:http';
import { brotliDecompressSync, createBrotliDecompress, createGunzip, gunzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { acceptedCoding } from '../../http/compression.ts';
import { eventually } from '../support/eventually.ts';
import { startTestService, type TestOrganization, type TestService } from '../support/service.ts';

let service: TestService;
let acme: TestOrganization;
beforeAll(async () => {
  service = await startTestService();
  acme = await service.signUp();
});
afterAll(() => service.close());

/** Those with another header than the usual ones are served by Node's server and Fastify. */
const ELSEWHERE = { te: 'trailers' };

function ask(path: string, body: object | undefined, headers: Record<string, string> = {}): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    const text = body === undefined ? '' : JSON.stringify(body);
    const sent = request(service.httpUrl + path, {
      method: body === undefined ? 'GET' : 'POST',
      agent: false,
      headers: { authorization: `Bearer ${acme.apiKey}`, ...(body === undefined ? {} : JSON_BODY(text)), ...headers },
    });
    sent.on('response', resolve).on('error', reject).end(text);
  });
}

const JSON_BODY = (text: string) => ({ 'content-type': 'application/json', 'content-length': String(Buffer.byteLength(text)) });

async function bytesOf(reply: IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of reply) chunks.push(chunk);
  return Buffer.concat(chunks);
}

const DECODE = { gzip: gunzipSync, br: brotliDecompressSync };
const decoded = async (reply: IncomingMessage, coding: 'gzip' | 'br') => DECODE[coding](await bytesOf(reply));

const rowsOf = (count: number) => `select n as id, 'customer ' || n % 7 as customer, n * 1.5 as total from generate_series(1, ${count}) n`;

describe('a reply', () => {
  it.each(
    (['gzip', 'br'] as const).flatMap((coding) =>
      ([{}, ELSEWHERE] as const).flatMap((headers) => [20, 600, 1_500, 50_000].map((count) => [count, coding, headers] as const)),
    ),
  )('of %i rows is compressed with %s for those who ask (%j)', async (count, coding, headers) => {
    const sql = rowsOf(count);
    const plain = await ask('/api/query', { sql }, headers);
    expect([plain.headers['content-encoding'], plain.headers.vary]).toEqual([undefined, undefined]);
    const wanted = await bytesOf(plain);
    const reply = await ask('/api/query', { sql }, { ...headers, 'accept-encoding': coding });
    expect([reply.statusCode, reply.headers['content-encoding'], reply.headers.vary]).toEqual([200, coding, 'Accept-Encoding']);
    expect(reply.headers['content-length'] === undefined).toBe(count > 1_000);
    const got = await bytesOf(reply);
    expect(got.length).toBeLessThan(wanted.length / 3);
    expect(JSON.parse(DECODE[coding](got).toString()).rows).toEqual(JSON.parse(wanted.toString()).rows);
  });

  it.each([
    ['few bytes', '/api/query', { sql: 'select 1' }],
    ['no more than 1,024', '/api/query', { sql: "select repeat('x', 850) as text" }],
  ])('of %s is left as it is', async (_name, path, body) => {
    for (const headers of [{}, ELSEWHERE]) {
      const reply = await ask(path, body, { ...headers, 'accept-encoding': 'gzip, br' });
      expect([reply.headers['content-encoding'], reply.headers.vary]).toEqual([undefined, undefined]);
      expect((await bytesOf(reply)).length).toBeLessThanOrEqual(1_024);
    }
  });

  it('of another call is compressed too: transactions, lines, CSV, errors, what Neon asks for', async () => {
    const sql = rowsOf(3_000);
    const gzip = { 'accept-encoding': 'gzip' };
    const transaction = await ask('/api/transaction', { statements: [{ sql }, { sql }] }, gzip);
    expect(
      JSON.parse((await decoded(transaction, 'gzip')).toString()).results.map(({ rowCount }: { rowCount: number }) => rowCount),
    ).toEqual([3_000, 3_000]);
    const lines = await decoded(await ask('/api/query', { sql }, { ...gzip, accept: 'application/x-ndjson' }), 'gzip');
    expect(lines.toString().split('\n')).toHaveLength(3_003);
    const csv = await decoded(await ask('/api/query', { sql }, { ...gzip, accept: 'text/csv' }), 'gzip');
    expect(csv.toString().split('\n').slice(0, 2)).toEqual(['id,customer,total', '1,customer 1,1.5']);
    for (const headers of [{}, ELSEWHERE]) {
      const failed = await ask('/api/query', { sql: `select '${'x'.repeat(2_000)}'::int` }, { ...gzip, ...headers });
      expect([failed.statusCode, failed.headers['content-encoding']]).toEqual([400, 'gzip']);
      expect(JSON.parse((await decoded(failed, 'gzip')).toString()).sqlstate).toBe('22P02');
    }
    const neon = await decoded(await ask('/sql', { query: sql, params: [] }, gzip), 'gzip');
    expect(JSON.parse(neon.toString()).rowCount).toBe(3_000);
  });

  it('to a stranger is compressed if it is the same for all, once', async () => {
    const from = { 'accept-encoding': 'br', authorization: '' };
    const document = await ask('/api/openapi.json', undefined, from);
    expect([document.headers['content-encoding'], document.headers.vary]).toEqual(['br', 'Accept-Encoding']);
    expect(JSON.parse((await decoded(document, 'br')).toString()).openapi).toBe('3.1.0');
    const refused = await ask(`/${'n'.repeat(600)}`, undefined, from);
    expect([refused.statusCode, refused.headers['content-encoding']]).toEqual([404, undefined]);
    refused.resume();
  });
});

describe.each([
  ['gzip', createGunzip],
  ['br', createBrotliDecompress],
] as const)('a stream with %s', (coding, decoder) => {
  it.each([{}, ELSEWHERE, { accept: 'application/x-ndjson' }])('is readable as far as it has come (%j)', async (headers) => {
    const lock = await service.connect(acme);
    await lock.query('SELECT pg_advisory_lock(7)');
    const sql =
      "select repeat('x', 1000) || n as text, case when n = 400 then pg_advisory_lock_shared(7)::text end from generate_series(1, 500) n";
    const reply = await ask('/api/query', { sql }, { ...headers, 'accept-encoding': coding });
    let text = '';
    const reading = reply.pipe(decoder());
    reading.on('data', (chunk: Buffer) => {
      text += chunk.toString();
    });
    await eventually('the rows before the wait', () => text.includes('x200"'));
    expect(text).not.toContain('x400"');
    await lock.query('SELECT pg_advisory_unlock(7)');
    await new Promise((resolve) => reading.on('end', resolve));
    expect(text).toContain('x500"');
    await lock.end();
  });

  // Where the function stands in FROM, Postgres would keep all its rows first.
  it.each([{}, ELSEWHERE])('ends its statement when its reader is gone (%j)', async (headers) => {
    const id = `gone-${coding}-${Object.keys(headers).length}`;
    const sql = "select repeat(md5('x'), 100), generate_series(1, 100000000)";
    const reply = await ask('/api/query', { sql }, { ...headers, 'accept-encoding': coding, 'x-request-id': id });
    await new Promise((resolve) => reply.once('data', resolve));
    reply.destroy();
    await eventually('the end of the call', () =>
      service.observations.some((seen) => seen.name === 'http.request' && seen.origin.requestId === id),
    );
    const [ended] = service.observations.filter((seen) => seen.name === 'http.request' && seen.origin.requestId === id);
    expect(ended).toMatchObject({ outcome: { status: 'error', sqlstate: '57014' } });
  });

  it('that fails on its way is no whole reply', async () => {
    for (const accept of ['application/json', 'text/csv']) {
      const sql = 'select g, 1 / (100000 - g) as inverse from generate_series(1, 200000) g';
      const reply = await ask('/api/query', { sql }, { accept, 'accept-encoding': coding });
      await expect(bytesOf(reply)).rejects.toThrow('aborted');
    }
  });
});

it.each([
  ['gzip', 'gzip'],
  ['gzip, deflate, br', 'br'],
  ['br;q=0.5, gzip;q=0.8', 'gzip'],
  ['GZIP', 'gzip'],
  ['gzip;q=0, br;q=0', undefined],
  ['*', 'br'],
  ['*;q=0.5, br;q=0', 'gzip'],
  ['identity, gzip;q=0.5', undefined],
  ['identity;q=0.5, gzip', 'gzip'],
  ['gzip;q=nonsense', undefined],
  ['deflate, zstd', undefined],
  ['', undefined],
])('"%s" accepts %s', (header, coding) => {
  expect(acceptedCoding(header)).toBe(coding);
});
