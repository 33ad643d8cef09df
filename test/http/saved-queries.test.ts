import pg from 'pg';
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest';
import { savedQueries, savedQuery } from '../../http/routes/saved-queries.ts';
import { newControlDatabase } from '../support/control-databases.ts';
import { startTestService, type TestOrganization, type TestService } from '../support/service.ts';

let service: TestService;
let acme: TestOrganization;
let reader: string;
let control: pg.Client;
beforeAll(async () => {
  const name = newControlDatabase();
  service = await startTestService({ POSTERN_CONTROL_DATABASE: name });
  const url = new URL(inject('clusterUrl'));
  url.pathname = name;
  control = new pg.Client({ connectionString: url.href });
  await control.connect();
  acme = await service.signUp();
  reader = (await service.call('POST', '/api/keys', { key: acme.apiKey, body: { name: 'reader', scope: 'read' } })).body.apiKey;
});
afterAll(async () => {
  await control.end();
  await service.close();
});

const pathOf = (name: string) => `/api/queries/${encodeURIComponent(name)}`;
const put = (name: string, body: object, headers: Record<string, string> = {}, key = acme.apiKey) =>
  service.call('PUT', pathOf(name), { key, body, headers });
const get = (name: string, headers: Record<string, string> = {}, key = acme.apiKey) => service.call('GET', pathOf(name), { key, headers });
const remove = (name: string, headers: Record<string, string> = {}, key = acme.apiKey) =>
  service.call('DELETE', pathOf(name), { key, headers });
const list = async (key = acme.apiKey) => (await service.call('GET', '/api/queries', { key })).body.queries;

describe('a saved query', () => {
  it('is made, replaced, read, listed and deleted', async () => {
    const name = 'Umsätze 100% a/b?#"\'';
    const made = await put(name, { sql: 'select 1', description: 'one' });
    expect([made.status, savedQuery.strict().parse(made.body)]).toEqual([
      201,
      {
        name,
        sql: 'select 1',
        description: 'one',
        createdAt: made.body.updatedAt,
        updatedAt: expect.stringMatching(/^\d{4}-.*Z$/),
        updatedBy: expect.stringMatching(/^key_/),
      },
    ]);
    const replaced = await put(name, { sql: 'select 2' });
    expect(replaced).toMatchObject({ status: 200, body: { name, sql: 'select 2', description: null, createdAt: made.body.createdAt } });
    await put('another', { sql: 'select 3' });
    const read = await get(name, {}, reader);
    expect([read.status, read.body, read.headers.get('etag')]).toEqual([200, replaced.body, replaced.headers.get('etag')]);
    expect(
      savedQueries
        .strict()
        .parse({ queries: await list(reader) })
        .queries.map((one) => one.name),
    ).toEqual([name, 'another']);
    expect(await remove(name)).toMatchObject({ status: 200, body: { name, deletedAt: expect.any(String) } });
    expect(await get(name)).toMatchObject({ status: 404, body: { code: 'not_found', message: `there is no saved query "${name}"` } });
    expect((await remove(name)).status).toBe(404);
    await remove('another');
  });

  it('belongs to one organization, and is changed by keys that may write', async () => {
    await put('mine', { sql: 'select 1' });
    const other = await service.signUp();
    expect((await get('mine', {}, other.apiKey)).status).toBe(404);
    expect(await list(other.apiKey)).toEqual([]);
    expect((await put('mine', { sql: 'select 2' }, {}, reader)).body.code).toBe('forbidden');
    expect((await remove('mine', {}, reader)).body.code).toBe('forbidden');
    expect((await remove('mine', {}, other.apiKey)).status).toBe(404);
    expect(await list()).toMatchObject([{ sql: 'select 1' }]);
  });

  it('is not changed where somebody else has changed it', async () => {
    const first = (await put('shared', { sql: 'select 1' }, { 'if-none-match': '*' })).headers.get('etag') ?? '';
    expect(first).toMatch(/^"[\w-]{43}"$/);
    expect(await put('shared', { sql: 'select 2' }, { 'if-none-match': '*' })).toMatchObject({
      status: 412,
      body: { code: 'precondition_failed' },
    });
    const coded = first.replace(/"$/, '-br"');
    const second = await put('shared', { sql: 'select 2' }, { 'if-match': `"x", ${coded}` });
    expect(second.status).toBe(200);
    for (const change of [put('shared', { sql: 'select 3' }, { 'if-match': first }), remove('shared', { 'if-match': first })])
      expect((await change).body.code).toBe('precondition_failed');
    expect((await put('gone', { sql: 'select 1' }, { 'if-match': '*' })).status).toBe(412);
    expect((await get('shared', { 'if-none-match': second.headers.get('etag') ?? '' })).status).toBe(304);
    const all = await service.call('GET', '/api/queries', { key: acme.apiKey });
    const again = await service.call('GET', '/api/queries', {
      key: acme.apiKey,
      headers: { 'if-none-match': all.headers.get('etag') ?? '' },
    });
    expect([again.status, again.body]).toEqual([304, undefined]);
    const racing = await Promise.all([1, 2, 3, 4].map((n) => put('race', { sql: `select ${n}` }, { 'if-none-match': '*' })));
    expect(racing.map(({ status }) => status).sort()).toEqual([201, 412, 412, 412]);
    expect((await remove('shared', { 'if-match': second.headers.get('etag') ?? '' })).status).toBe(200);
  });

  it.each([
    ['x'.repeat(101), { sql: 'select 1' }, 'name: must be'],
    [' ', { sql: 'select 1' }, 'name: must be'],
    ['a\nb', { sql: 'select 1' }, 'must not contain control characters'],
    ['a\u202eb', { sql: 'select 1' }, 'must not contain invisible formatting characters'],
    ['\u200b', { sql: 'select 1' }, 'must not contain invisible formatting characters'],
    ['ok', {}, 'sql: is required'],
    ['ok', { sql: ' ' }, 'sql: must not be empty'],
    ['ok', { sql: `select '${'ä'.repeat(32_768)}'` }, 'sql: must be at most 65536 bytes'],
    ['ok', { sql: 'select 1', description: 'x'.repeat(1_001) }, 'description: must be'],
    ['ok', { sql: 'select 1', name: 'x' }, 'unknown field "name"'],
  ])('named %.20j with %.40j is refused', async (name, body, message) => {
    const reply = await put(name, body);
    expect([reply.status, reply.body.code, reply.body.message]).toEqual([400, 'invalid_request', expect.stringContaining(message)]);
  });

  it('may have a long name and a long text', async () => {
    for (const name of ['/'.repeat(100), '😀'.repeat(50), 'ä'.repeat(100)]) {
      const sql = `select '${'x'.repeat(65_526)}'`;
      expect(await put(name, { sql })).toMatchObject({ status: 201, body: { name, sql } });
    }
    expect((await put('a\u0308', { sql: 'select 1' })).body.name).toBe('ä');
    expect(await get('%2e%2e')).toMatchObject({ status: 404 });
  });

  it('is one of a limited number, of a limited size', async () => {
    const other = await service.signUp();
    const save = (name: string, sql = 'select 1') => service.call('PUT', `/api/queries/${name}`, { key: other.apiKey, body: { sql } });
    await control.query(
      `insert into postern.saved_queries select $1, 'q' || n, repeat('x', 4150), null, now(), now(), 'key_' from generate_series(1, 499) n`,
      [other.id],
    );
    expect(await save('large', 'x'.repeat(40_000))).toMatchObject({ status: 409, body: { code: 'too_many_queries' } });
    expect((await save('small')).status).toBe(201);
    expect(await save('one-more')).toMatchObject({ status: 409, body: { code: 'too_many_queries' } });
    expect((await save('q7')).status).toBe(200);
  });

  it('is recorded by its name alone, and goes with the organization', async () => {
    const other = await service.signUp();
    const save = (name: string) => service.call('PUT', pathOf(name), { key: other.apiKey, body: { sql: 'select 12345678' } });
    await save("it's");
    await remove("it's", {}, other.apiKey);
    await save('kept');
    const entries = (await service.call('GET', '/api/audit', { key: other.apiKey })).body.data;
    const changes = entries.filter(({ action }: { action: string }) => /^queries\./.test(action));
    expect(changes.map(({ action, statement }: { action: string; statement: { sql: string } }) => [action, statement.sql])).toEqual([
      ['queries.save', "SAVE QUERY 'kept'"],
      ['queries.delete', "DROP QUERY 'it''s'"],
      ['queries.save', "SAVE QUERY 'it''s'"],
    ]);
    expect(JSON.stringify(service.observations)).not.toContain('12345678');
    const dropped = await service.call('DELETE', '/api/organization', { key: other.apiKey, body: { confirm: other.id } });
    expect(dropped.status).toBe(200);
    expect((await control.query('select from postern.saved_queries where organization_id = $1', [other.id])).rowCount).toBe(0);
  });
});
