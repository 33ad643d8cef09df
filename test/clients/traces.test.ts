import { once } from 'node:events';
import { mkdir, symlink, writeFile } from 'node:fs/promises';
import { createServer, type Server } from 'node:http';
import { join } from 'node:path';
import { json } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import { type AttributeValue, SpanKind, SpanStatusCode, trace } from '@opentelemetry/api';
import { InMemorySpanExporter, SimpleSpanProcessor, TracerProvider } from '@opentelemetry/sdk-trace';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { Traces } from '../../src/observers/traces.ts';
import { portOf } from '../../src/ports.ts';
import { textOf } from '../support/documents.ts';
import { eventually } from '../support/eventually.ts';
import { type Installation, makeInstallation, type PosternProcess } from '../support/process.ts';
import { makeScratch, type Scratch } from '../support/scratch.ts';
import { type TestOrganization, testVariables } from '../support/service.ts';

const TRACE = '0af7651916cd43dd8448eb211c80319c';
const CALLER = 'b7ad6b7169203331';
const TRACEPARENT = `00-${TRACE}-${CALLER}-01`;
const PLACEMENT = { kind: 'database', cluster: 'default', database: 'org_a', schema: 'public', role: 'org_a' } as const;

describe('a span', () => {
  const exporter = new InMemorySpanExporter();
  let traces: Traces;
  beforeAll(() => {
    expect(Traces.open(() => undefined)).toBeUndefined();
    trace.setGlobalTracerProvider(new TracerProvider({ spanProcessors: [new SimpleSpanProcessor({ exporter })] }));
    const opened = Traces.open(({ cluster }) => (cluster === 'default' ? { host: 'db1.example', port: 5433 } : undefined));
    if (opened === undefined) throw new Error('the SDK was not found');
    traces = opened;
  });
  afterAll(() => trace.disable());
  afterEach(() => exporter.reset());

  function spanOf(request: Partial<Parameters<Traces['answered']>[0]>) {
    traces.answered({ placement: PLACEMENT, durationMs: 5, sqlstate: undefined, sql: undefined, ...request });
    const [span] = exporter.getFinishedSpans().slice(-1);
    if (span === undefined) throw new Error('there is no span');
    return span;
  }

  it('has the attributes of the stable conventions, and the time of the request', () => {
    const before = Date.now();
    const span = spanOf({ sql: 'SELECT 1', durationMs: 1_500 });
    expect([span.name, span.kind, span.status.code]).toEqual(['SELECT org_a', SpanKind.CLIENT, SpanStatusCode.UNSET]);
    expect(span.attributes).toEqual({
      'db.system.name': 'postgresql',
      'db.namespace': 'org_a',
      'db.operation.name': 'SELECT',
      'server.address': 'db1.example',
      'server.port': 5433,
    });
    expect(span.parentSpanContext).toBeUndefined();
    expect(span.duration[0] + span.duration[1] / 1e9).toBeCloseTo(1.5, 6);
    const startedMs = span.startTime[0] * 1_000 + span.startTime[1] / 1e6;
    expect(Math.abs(startedMs + 1_500 - before)).toBeLessThan(60_000);
  });

  it('has the SQLSTATE of an error', () => {
    const span = spanOf({ sqlstate: '42P01' });
    expect(span.status.code).toBe(SpanStatusCode.ERROR);
    expect(span.attributes).toMatchObject({ 'db.response.status_code': '42P01', 'error.type': '42P01' });
  });

  it('has database and schema of an organization that lives in one, and nothing of a server that is not known', () => {
    const span = spanOf({ placement: { ...PLACEMENT, kind: 'schema', cluster: 'eu2', database: 'postern_shared', schema: 'org_a' } });
    expect([span.name, span.attributes]).toEqual([
      'postern_shared|org_a',
      { 'db.system.name': 'postgresql', 'db.namespace': 'postern_shared|org_a' },
    ]);
  });

  it.each([
    ['of one statement', { sql: ' /* a */ update t SET a = 1;' }, 'UPDATE'],
    ['of a command tag', { sql: 'WITH a AS (SELECT 1) DELETE FROM t', command: 'DELETE' }, 'DELETE'],
    ['of its first word', { command: 'CREATE TABLE' }, 'CREATE'],
    ['not of several statements', { sql: 'SELECT 1; DELETE FROM t' }, undefined],
    ['not of several command tags', { command: 'SELECT, DELETE' }, undefined],
    ['not of a text that is none', { sql: 'hunter2 SELECT' }, undefined],
    ['not of a long text', { sql: `SELECT ${' '.repeat(10_000)} 1` }, undefined],
  ])('has the operation %s', (_of, request, operation) => {
    expect(spanOf(request).attributes['db.operation.name']).toBe(operation);
  });

  it.each([
    ['the header', { traceparent: TRACEPARENT }],
    ['a header of a later version', { traceparent: `01-${TRACE}-${CALLER}-01-more` }],
    [
      'the header before a comment',
      { traceparent: TRACEPARENT, sql: `SELECT 1 /*traceparent='00-${'1'.repeat(32)}-${'2'.repeat(16)}-01'*/` },
    ],
    ['a trailing comment', { sql: `SELECT 1 /*traceparent='${TRACEPARENT}'*/` }],
    ['a trailing comment with more, and a semicolon', { sql: `SELECT 1 /*action='a',traceparent='${TRACEPARENT}',zone='b'*/ ; ` }],
  ])('has its parent of %s', (_of, request) => {
    const span = spanOf(request);
    expect(span.spanContext().traceId).toBe(TRACE);
    expect(span.parentSpanContext).toMatchObject({ traceId: TRACE, spanId: CALLER, isRemote: true });
  });

  it.each([
    ['a damaged header', { traceparent: TRACEPARENT.slice(1) }],
    ['a header with an id of zeros', { traceparent: `00-${'0'.repeat(32)}-${CALLER}-01` }],
    ['version ff', { traceparent: `ff-${TRACE}-${CALLER}-01` }],
    ['a comment that is not at the end', { sql: `SELECT 1 /*traceparent='${TRACEPARENT}'*/ + 1` }],
    ['a literal', { sql: `SELECT 'traceparent=''${TRACEPARENT}'''` }],
  ])('has no parent of %s', (_of, request) => {
    expect(spanOf(request).parentSpanContext).toBeUndefined();
  });

  it('is not made where the caller has decided so', () => {
    traces.answered({
      placement: PLACEMENT,
      durationMs: 1,
      sqlstate: undefined,
      sql: undefined,
      traceparent: TRACEPARENT.replace(/1$/, '0'),
    });
    expect(exporter.getFinishedSpans()).toEqual([]);
  });
});

/** A span, and a value of an attribute, as OTLP has them in JSON. */
interface SentSpan {
  readonly name: string;
  readonly traceId: string;
  readonly parentSpanId?: string;
  readonly kind: number;
  readonly attributes: {
    readonly key: string;
    readonly value: { readonly stringValue?: AttributeValue; readonly intValue?: AttributeValue };
  }[];
}

describe('the service, with an SDK that the example of the operators’ page loads', () => {
  const received: unknown[] = [];
  let scratch: Scratch;
  let collector: Server;
  let installation: Installation;
  let postern: PosternProcess;
  let organization: TestOrganization;
  beforeAll(async () => {
    [scratch, installation] = await Promise.all([makeScratch(), makeInstallation()]);
    collector = createServer(async (request, response) => {
      received.push(await json(request));
      response.setHeader('content-type', 'application/json').end('{}');
    }).listen(0, '127.0.0.1');
    await once(collector, 'listening');
    const folder = join(scratch.path, 'otel');
    await mkdir(folder);
    await symlink(fileURLToPath(new URL('node_modules', import.meta.url)), join(folder, 'node_modules'));
    await writeFile(
      join(folder, 'otel.mjs'),
      textOf('Traces', 'js').replace('SpanProcessor({', 'SpanProcessor({ scheduledDelayMillis: 100,'),
    );
    postern = await installation.start({
      ...testVariables(),
      POSTERN_WORKERS: '2',
      NODE_OPTIONS: `--import ${join(folder, 'otel.mjs')}`,
      OTEL_EXPORTER_OTLP_ENDPOINT: `http://127.0.0.1:${portOf(collector)}`,
    });
    organization = await postern.signUp();
  });
  afterAll(async () => {
    await installation.remove();
    collector.close();
    await scratch.remove();
  });

  const spans = (): SentSpan[] =>
    (received as { resourceSpans: { scopeSpans: { spans: SentSpan[] }[] }[] }[]).flatMap(({ resourceSpans }) =>
      resourceSpans.flatMap(({ scopeSpans }) => scopeSpans.flatMap((scope) => scope.spans)),
    );

  /** Waits for the span of a request that was sent as part of a trace. */
  async function spanOfTrace(traceId: string) {
    const find = () => spans().filter((span) => span.traceId === traceId);
    await eventually('the span is sent', () => find().length > 0);
    const [{ name, parentSpanId, kind, attributes } = { attributes: [] }] = find();
    const values = Object.fromEntries(attributes.map(({ key, value }) => [key, value.stringValue ?? value.intValue]));
    return { name, parentSpanId, kind, values, count: find().length };
  }

  const traceparentOf = (traceId: string) => `00-${traceId}-${CALLER}-01`;
  const SECRET = 'a secret in the text';

  it.each([
    ['on the fast path', '/api/query', { sql: `SELECT 1, '${SECRET}', $1`, params: [SECRET] }, 'SELECT'],
    ['in the server', '/api/query', { sql: `SELECT 2, '${SECRET}'`, readOnly: true }, 'SELECT'],
    ['several', '/api/transaction', { statements: [{ sql: 'SELECT 1' }, { sql: `SELECT '${SECRET}'` }] }, undefined],
  ])('makes a span of a request over HTTP: %s', async (how, path, body, operation) => {
    const traceId = { 'on the fast path': '1', 'in the server': '2' }[how] ?? '3';
    const headers: Record<string, string> = { traceparent: traceparentOf(traceId.repeat(32)) };
    // A header that only the server reads.
    if (how === 'in the server') headers['x-unknown'] = '1';
    expect((await postern.call('POST', path, { key: organization.apiKey, body, headers })).status).toBe(200);
    const span = await spanOfTrace(traceId.repeat(32));
    expect(span).toMatchObject({ parentSpanId: CALLER, count: 1 });
    expect(span.values).toMatchObject({ 'db.system.name': 'postgresql', 'db.namespace': organization.id });
    if (operation !== undefined) expect(span.values['db.operation.name']).toBe(operation);
    expect(span.values['server.address']).toMatch(/\/\.s\.PGSQL\.\d+$/);
  });

  it('makes spans of requests at the wire door, by both protocols, and of errors', async () => {
    const client = await postern.connect(organization);
    const [simple, extended, failing] = ['4', '5', '6'].map((digit) => digit.repeat(32)) as [string, string, string];
    const comment = (traceId: string) => `/*route='%2Fpolls',traceparent='${traceparentOf(traceId)}'*/`;
    await client.query(`SELECT '${SECRET}' ${comment(simple)}`);
    expect(await spanOfTrace(simple)).toMatchObject({ name: `SELECT ${organization.id}`, parentSpanId: CALLER, count: 1 });
    await client.query(`SELECT $1::text ${comment(extended)}`, [SECRET]);
    expect(await spanOfTrace(extended)).toMatchObject({ name: `SELECT ${organization.id}`, parentSpanId: CALLER, count: 1 });
    await expect(client.query(`SELECT 1 / 0 ${comment(failing)}`)).rejects.toMatchObject({ code: '22012' });
    expect((await spanOfTrace(failing)).values).toMatchObject({ 'db.response.status_code': '22012', 'error.type': '22012' });
    await client.end();
  });

  it('sends the last spans when it ends, and none has ever had a text or a parameter', async () => {
    const last = '7'.repeat(32);
    const headers = { traceparent: traceparentOf(last) };
    await postern.call('POST', '/api/query', { key: organization.apiKey, body: { sql: 'SELECT 7' }, headers });
    expect((await postern.end('SIGTERM')).code).toBe(0);
    expect((await spanOfTrace(last)).count).toBe(1);
    expect(JSON.stringify(received)).not.toContain(SECRET);
    expect(JSON.stringify(received)).toContain('"service.name"');
  });
});
