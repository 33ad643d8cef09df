import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import pg from 'pg';
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest';
import { auditReply, auditVerifyReply } from '../../http/reply-schemas.ts';
import { AUDIT_ACTIONS } from '../../src/catalog/audit/records.ts';
import { newControlDatabase } from '../support/control-databases.ts';
import { eventually } from '../support/eventually.ts';
import { startTestService, type TestOrganization, type TestService } from '../support/service.ts';

const SOURCES = fileURLToPath(new URL('../../src', import.meta.url));

const controlDatabase = newControlDatabase();
let service: TestService;
let acme: TestOrganization;
beforeAll(async () => {
  service = await startTestService({ POSTERN_CONTROL_DATABASE: controlDatabase });
  acme = await service.signUp();
  await service.query(acme, 'select $1::int', [1]);
  await service.query(acme, 'select nope');
  await service.call('GET', '/api/auth/me', { key: acme.apiKey, headers: { 'x-request-id': 'me-1' } });
  await eventually('the entry of the last call', async () => (await audit('?requestId=me-1')).body.data.length === 1);
});
afterAll(() => service.close());

const audit = (search: string) => service.call('GET', `/api/audit${search}`, { key: acme.apiKey });
const actions = (reply: { body: { data: { action: string }[] } }) => reply.body.data.map(({ action }) => action);

describe('the audit log', () => {
  it('has an entry for everything that was done', async () => {
    const reply = await audit('?action=query');
    expect(reply.status).toBe(200);
    expect(auditReply.strict().parse(reply.body).data).toMatchObject([
      {
        action: 'query',
        surface: 'http',
        actor: { keyPrefix: acme.apiKey.slice(0, 10) },
        sourceIp: '127.0.0.1',
        statement: { sql: 'select nope', paramCount: 0 },
        outcome: { status: 'error', httpStatus: 400, sqlstate: '42703' },
      },
      { statement: { sql: 'select $1::int', paramCount: 1, command: 'SELECT' }, outcome: { status: 'ok', httpStatus: 200, rowCount: 1 } },
    ]);
  });

  it('takes the same filters in the query string and in a body', async () => {
    const inQuery = await audit('?action=query&outcome=error&limit=5&since=2020-01-01T00:00:00Z');
    const inBody = await service.call('POST', '/api/audit', {
      key: acme.apiKey,
      body: { action: 'query', outcome: 'error', limit: 5, since: '2020-01-01T00:00:00Z' },
    });
    expect(inBody.status).toBe(200);
    expect(inBody.body.data).toHaveLength(1);
    expect(inBody.body).toEqual(inQuery.body);
  });

  it('is read page by page, newest first, and records the signup once', async () => {
    const until = new Date().toISOString();
    const pages: string[] = [];
    let after = '';
    do {
      const reply = await audit(`?limit=2&until=${until}${after}`);
      pages.push(...actions(reply));
      after = reply.body.hasMore ? `&after=${encodeURIComponent(reply.body.nextCursor)}` : '';
    } while (after !== '');
    expect(pages.slice(-4)).toEqual(['auth.me', 'query', 'query', 'auth.signup']);
  });

  it.each([
    ['?limit=0', 'limit: must be a whole number from 1 to 1000'],
    ['?limit=x', 'limit: must be a whole number from 1 to 1000'],
    ['?limit=5000', 'limit: must be a whole number from 1 to 1000'],
    ['?since=yesterday', 'since: must be a date and time with a time zone'],
    ['?outcome=maybe', 'outcome: must be "ok" or "error"'],
    ['?action=nosuch', /^action: must be "auth.signup" or .* or "query" or .* or "login.failed" or /],
    ['?color=red', 'unknown field "color"'],
    ['?action=a&action=b', /^action: must be "auth.signup" or /],
  ])('refuses %s', async (search, message) => {
    const { status, body } = await audit(search);
    expect([status, body.code]).toEqual([400, 'invalid_request']);
    expect(body.message).toEqual(typeof message === 'string' ? message : expect.stringMatching(message));
  });

  it('knows every action that is recorded', () => {
    const recorded = readdirSync(SOURCES, { recursive: true, encoding: 'utf8' }).flatMap((file) => {
      const text = file.endsWith('.ts') ? readFileSync(join(SOURCES, file), 'utf8') : '';
      return [...text.matchAll(/\baction: '([^']+)'|\brecord\(observation, '([^']+)'/g)].map(([, direct, observed]) => direct ?? observed);
    });
    expect(recorded).toEqual(expect.arrayContaining(['auth.signup', 'key.issued', 'login', 'session.closed']));
    for (const action of recorded) expect(AUDIT_ACTIONS).toContain(action);
  });

  it('can be verified', async () => {
    const { status, body } = await service.call('GET', '/api/audit/verify', { key: acme.apiKey });
    expect(status).toBe(200);
    expect(auditVerifyReply.strict().parse(body)).toMatchObject({ ok: true, headHash: expect.stringMatching(/^[0-9a-f]{64}$/) });
    expect(body.count).toBeGreaterThanOrEqual(4);
  });

  it('shows an organization its own entries only', async () => {
    const other = await service.signUp('Other');
    const { body } = await service.call('GET', '/api/audit', { key: other.apiKey });
    expect(actions({ body })).toEqual(['auth.signup']);
  });

  it('that was tampered with in the database is found out', async () => {
    const other = await service.signUp('Other');
    await service.call('GET', '/api/audit', { key: other.apiKey });
    const entries = async () => (await service.call('GET', '/api/audit', { key: other.apiKey })).body.data;
    await eventually('a second entry', async () => (await entries()).length >= 2);
    const second = (await entries()).find(({ seq }: { seq: number }) => seq === 2);
    const url = new URL(inject('clusterUrl'));
    url.pathname = `/${controlDatabase}`;
    const operator = new pg.Client({ connectionString: url.href });
    await operator.connect();
    await operator.query(
      `update postern.audit_blocks set entries = replace(entries, '"127.0.0.1"', '"192.0.2.1"')
      where organization_id = $1 and 2 between first_seq and seq`,
      [other.id],
    );
    await operator.end();
    const { status, body } = await service.call('GET', '/api/audit/verify', { key: other.apiKey });
    expect(status).toBe(200);
    expect(auditVerifyReply.strict().parse(body)).toMatchObject({
      ok: false,
      count: 1,
      firstBad: { seq: 2, id: second.id, reason: 'changed' },
    });
  });
});
