import { createHash } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { appendToChains } from '../../../../src/catalog/audit/blocks.ts';
import { listEntries } from '../../../../src/catalog/audit/list.ts';
import { type AuditEntry, type AuditEvent, recordOf } from '../../../../src/catalog/audit/records.ts';
import { ControlPool } from '../../../../src/catalog/control-pool.ts';
import type { ObservedStatement } from '../../../../src/observation.ts';
import { eventually } from '../../../support/eventually.ts';
import { SeededRandom } from '../../../support/random.ts';
import { newOrganization, ORIGIN, openCatalog, type TestCatalog, TestControlDatabase } from '../control-database.ts';
import { canonical } from './canonical.ts';

let database: TestControlDatabase;
let opened: TestCatalog;

beforeAll(async () => {
  database = await TestControlDatabase.create();
  opened = await openCatalog(database);
});

afterAll(async () => {
  await opened.catalog.close();
  await database.drop();
});

const DAY_MS = 86_400_000;

function eventOf(organizationId: string, changes: Partial<AuditEvent> = {}): AuditEvent {
  return {
    organizationId,
    action: 'query',
    origin: ORIGIN,
    actor: { keyId: 'key_1', keyPrefix: 'pst_abc' },
    outcome: { status: 'ok', httpStatus: 200, sqlstate: null, rowCount: 1, durationMs: 1.5 },
    ...changes,
  };
}

/** A new organization with so many entries after its first, which tells of the sign-up. */
async function organizationWith(entries: number, changes: Partial<AuditEvent> = {}): Promise<string> {
  const { organization } = await newOrganization(opened.catalog);
  for (let n = 0; n < entries; n++) opened.catalog.audit.append(eventOf(organization.id, changes));
  await opened.catalog.audit.flush();
  return organization.id;
}

/** What somebody may do who can write to the control database. @param change gets the line of an entry; without what it returns the line is gone */
async function tamper(id: string, seq: number, change: (line: string) => string | undefined): Promise<void> {
  const [block] = await database.query<{ seq: string; first_seq: string; entries: string }>(
    'select seq, first_seq, entries from postern.audit_blocks where organization_id = $1 and $2 between first_seq and seq',
    [id, seq],
  );
  if (block === undefined) throw new Error('no such entry');
  const lines = block.entries.split('\n').flatMap((line, at) => (at === seq - Number(block.first_seq) ? (change(line) ?? []) : line));
  const where = 'where organization_id = $1 and seq = $2';
  if (lines.length === 0) await database.query(`delete from postern.audit_blocks ${where}`, [id, block.seq]);
  else await database.query(`update postern.audit_blocks set entries = $3 ${where}`, [id, block.seq, lines.join('\n')]);
}

type StoredLine = [hash: string, seq: number, id: string, occurredAt: string, action: string, ...rest: unknown[]];
const [HASH, SEQ, ID, OCCURRED_AT, ACTION, PARTY, STATEMENT, OUTCOME] = [0, 1, 2, 3, 4, 6, 7, 9];

/** Writes something else into an entry, and leaves its hash as it is. */
const edit = (place: number, value: unknown) => (line: string) => {
  const stored: StoredLine = JSON.parse(line);
  return JSON.stringify(stored.map((old, at) => (at === place ? value : old)));
};

const PARTY_OF_ORIGIN = {
  actor: { keyId: 'key_1', keyPrefix: 'pst_abc' },
  applicationName: null,
  sourceIp: '203.0.113.7',
  surface: 'http',
};

const list = (id: string) => opened.catalog.audit.list(id).then(({ data }) => data);
const verify = (id: string) => opened.catalog.audit.verify(id);

describe('an entry', () => {
  test('tells what happened, and nothing else', async () => {
    const statement = { sql: 'select $1', command: 'SELECT', paramCount: 1 };
    const id = await organizationWith(1, { statement });
    const [entry, first] = await list(id);
    expect(entry).toEqual({
      id: expect.stringMatching(/^aud_[0-9a-z]{21}$/),
      seq: 2,
      occurredAt: expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/),
      action: 'query',
      surface: 'http',
      actor: { keyId: 'key_1', keyPrefix: 'pst_abc' },
      sourceIp: '203.0.113.7',
      userAgent: 'curl/8.5.0',
      applicationName: null,
      requestId: 'req-1',
      statement: { ...statement, sqlHash: createHash('sha256').update('select $1').digest('hex') },
      outcome: { status: 'ok', httpStatus: 200, sqlstate: null, rowCount: 1, durationMs: 1.5 },
      prevHash: first?.hash,
      hash: expect.stringMatching(/^[0-9a-f]{64}$/),
    });
    expect(Object.keys(first ?? {})).not.toContain('statement');
  });

  test('has a hash that anybody can compute from it', async () => {
    const id = await organizationWith(1, { origin: { surface: 'wire', sourceIp: '::1', applicationName: 'psql "ü"' } });
    const [entry, first] = await list(id);
    const text =
      '{"action":"query","actor":{"keyId":"key_1","keyPrefix":"pst_abc"},"applicationName":"psql \\"ü\\"",' +
      `"id":"${entry?.id}","occurredAt":"${entry?.occurredAt}",` +
      '"outcome":{"durationMs":1.5,"httpStatus":200,"rowCount":1,"sqlstate":null,"status":"ok"},' +
      `"prevHash":"${first?.hash}","requestId":null,"seq":2,"sourceIp":"::1","surface":"wire","userAgent":null}`;
    expect(entry?.hash).toBe(createHash('sha256').update(text).digest('hex'));
    expect(first?.prevHash).toBe(createHash('sha256').update(id).digest('hex'));
  });

  test('is written by itself, within 250 ms but for what the write takes', async () => {
    const { organization } = await newOrganization(opened.catalog);
    const { catalog, observations } = await openCatalog(database);
    const written = () => observations.filter((observation) => observation.name === 'audit.written');
    for (let n = 1; n <= 5; n += 1) {
      const timers = vi.spyOn(globalThis, 'setTimeout');
      catalog.audit.append(eventOf(organization.id));
      const delays = timers.mock.calls.map(([, ms]) => ms);
      timers.mockRestore();
      expect(delays).toEqual([expect.toSatisfy((ms: number) => ms < 250)]);
      await eventually('it is written', () => written().length === n);
    }
    expect(written().map(({ entries }) => entries)).toEqual([1, 1, 1, 1, 1]);
    await catalog.close();
  });

  test('is written when the service stops', async () => {
    const { organization } = await newOrganization(opened.catalog);
    const { catalog } = await openCatalog(database);
    for (let n = 0; n < 1_500; n++) catalog.audit.append(eventOf(organization.id));
    await catalog.close();
    expect(await verify(organization.id)).toMatchObject({ ok: true, count: 1_501 });
  });

  test('of an organization that does not exist is written nowhere', async () => {
    await organizationWith(0);
    opened.catalog.audit.append(eventOf('org_nobody'));
    expect(await list('org_nobody')).toEqual([]);
    await expect(verify('org_nobody')).rejects.toMatchObject({ kind: 'not_found' });
  });

  test('holds what clients send, cut and made storable', async () => {
    const origin = { ...ORIGIN, userAgent: `a\0b\ud800${'x'.repeat(1_000)}`, applicationName: '\u{1F600}'.repeat(300) };
    const id = await organizationWith(1, { origin });
    const [entry] = await list(id);
    expect(entry?.userAgent).toBe(`a\ufffdb\ufffd${'x'.repeat(496)}`);
    expect(entry?.applicationName).toBe('\u{1F600}'.repeat(250));
    expect(await verify(id)).toMatchObject({ ok: true });
  });

  test('holds no password, and tells statements apart that differ in more than their text', async () => {
    const { organization } = await newOrganization(opened.catalog);
    const statements: ObservedStatement[] = [
      { sql: `alter role x password 'hunter2'`, command: 'ALTER ROLE', paramCount: 0 },
      { sql: 'select 1', command: 'SELECT', paramCount: 0 },
      { sql: 'select 1', paramCount: 0 },
      { sql: 'select 1', command: 'SELECT', paramCount: 0 },
      { sql: 'select 1', command: 'SELECT' },
    ];
    for (const statement of statements) opened.catalog.audit.append(eventOf(organization.id, { statement }));
    const entries = (await list(organization.id)).reverse().slice(1);
    expect(entries.map(({ statement }) => [statement?.sql, statement?.command, statement?.paramCount])).toEqual([
      [`alter role x password '***'`, 'ALTER ROLE', 0],
      ['select 1', 'SELECT', 0],
      ['select 1', null, 0],
      ['select 1', 'SELECT', 0],
      ['select 1', 'SELECT', null],
    ]);
  });

  test('comes back as it went in, and verifies, whatever its texts are made of', async () => {
    const random = new SeededRandom(7);
    const texts = [
      '',
      'NULL',
      'null',
      '"',
      '\\',
      '\\"',
      '{',
      '}',
      ',',
      ' ',
      '\n',
      '\t',
      '\x01',
      '\x7f',
      '\u2028',
      "'",
      '\\n',
      '\\x41',
      'é',
      '\u{1F600}',
    ];
    const text = () => Array.from({ length: random.below(6) }, () => texts[random.below(texts.length)]).join('');
    const number = () => [null, 0, -1, 1, 4_294_967_296, 1e21][random.below(6)] ?? null;
    const event = (): Partial<AuditEvent> => ({
      action: text(),
      origin: { surface: 'wire', sourceIp: text(), userAgent: text(), applicationName: text(), requestId: text() },
      actor: { keyId: text(), keyPrefix: text() },
      // White space before it is left out.
      ...(random.below(2) === 0 ? {} : { statement: { sql: `x${text()}`, command: text(), paramCount: random.below(3) } }),
      ...(random.below(2) === 0 ? {} : { session: { statements: 1, bytesIn: 2, bytesOut: 3, reason: text() } }),
      outcome: { status: 'error', httpStatus: number(), sqlstate: text(), rowCount: number(), durationMs: number() },
    });
    const id = await organizationWith(0);
    const events = Array.from({ length: 300 }, event);
    for (const changes of events) opened.catalog.audit.append(eventOf(id, changes));
    const { data } = await opened.catalog.audit.list(id, { limit: 300 });
    const told = ({
      action,
      surface,
      actor,
      sourceIp,
      userAgent,
      applicationName,
      requestId,
      statement,
      session,
      outcome,
    }: AuditEntry) => ({
      action,
      origin: { surface, sourceIp, userAgent, applicationName, requestId },
      actor,
      ...(statement === undefined
        ? {}
        : { statement: { sql: statement.sql, command: statement.command, paramCount: statement.paramCount } }),
      ...(session === undefined ? {} : { session }),
      outcome,
    });
    expect(data.reverse().map(told)).toEqual(events);
    for (const { hash, ...entry } of data) expect(hash).toBe(createHash('sha256').update(canonical(entry)).digest('hex'));
    expect(await verify(id)).toMatchObject({ ok: true, count: 301 });
  });

  test('that Postgres rejects is dropped and reported, and delays no other', async () => {
    const { catalog, observed } = await openCatalog(database);
    const { organization } = await newOrganization(catalog);
    await database.query(`alter table postern.audit_blocks add constraint poison check (entries not like '%poison%')`);
    for (const action of ['one', 'poison', 'two']) catalog.audit.append(eventOf(organization.id, { action }));
    expect(await observed('audit.dropped')).toMatchObject({ entries: 1, cause: { code: '23514' } });
    await catalog.audit.flush();
    await database.query('alter table postern.audit_blocks drop constraint poison');
    expect((await list(organization.id)).map(({ action }) => action)).toEqual(['two', 'one', 'auth.signup']);
    await catalog.close();
  });

  test('of which no entry can be made is dropped and reported, and delays no other', async () => {
    const { catalog, observed } = await openCatalog(database);
    const { organization } = await newOrganization(catalog);
    const spoiled = { ...eventOf(organization.id), origin: undefined } as unknown as AuditEvent;
    catalog.audit.append(eventOf(organization.id, { action: 'one' }));
    catalog.audit.append(spoiled);
    catalog.audit.append(eventOf(organization.id, { action: 'two', statement: { sql: 'x'.repeat(10_000) } }));
    expect(await observed('audit.dropped')).toMatchObject({ entries: 1, cause: expect.any(TypeError) });
    await catalog.audit.flush();
    expect((await list(organization.id)).map(({ action }) => action)).toEqual(['two', 'one', 'auth.signup']);
    await catalog.close();
  });

  test('waits while the control database is away, and is written once', async () => {
    const { catalog, observed } = await openCatalog(database);
    const { organization } = await newOrganization(catalog);
    // The batch is stopped in the middle of its transaction, by a lock that its session then loses.
    await database.query('begin');
    await database.query('lock table postern.audit_blocks in exclusive mode');
    catalog.audit.append(eventOf(organization.id));
    await expect
      .poll(() => database.query(`select 1 from pg_locks where relation = 'postern.audit_blocks'::regclass and not granted`))
      .not.toEqual([]);
    await database.terminate('postern control');
    await observed('service.warning');
    await database.query('commit');
    catalog.audit.append(eventOf(organization.id));
    await catalog.audit.flush();
    expect(await verify(organization.id)).toMatchObject({ ok: true, count: 3 });
    await catalog.close();
  });

  test('is written once when the COMMIT of its batch was not answered', async () => {
    const id = await organizationWith(0);
    const records = [1, 2].map(() => recordOf(eventOf(id), new Date()));
    const control = new ControlPool(database.connection);
    const tried = new Map<string, number>();
    const rolledBack = control.transaction(async (sql) => {
      await appendToChains(sql, records, tried);
      throw new Error('not written');
    });
    await expect(rolledBack).rejects.toThrow('not written');
    opened.catalog.audit.append(eventOf(id, { action: 'another at that place' }));
    await opened.catalog.audit.flush();
    await control.transaction((sql) => appendToChains(sql, records, tried));
    const retried = [...records, recordOf(eventOf(id), new Date())];
    await control.transaction((sql) => appendToChains(sql, retried, tried));
    await control.transaction((sql) => appendToChains(sql, retried, tried));
    await control.close();
    expect(await verify(id)).toMatchObject({ ok: true, count: 5 });
    expect((await list(id)).map(({ id: entry }) => entry).slice(0, 3)).toEqual(retried.map((record) => record.id).reverse());
  });

  test('is looked for in little time, however long the log is', async () => {
    const id = await organizationWith(0);
    await database.query(
      `insert into postern.audit_blocks (organization_id, first_seq, prev_hash, seq, hash, first_at, last_at, entries)
      select organization_id, first_seq + 1000 + n, prev_hash, seq + 1000 + n, hash, first_at, last_at, entries
      from postern.audit_blocks, generate_series(1, 60000) n where organization_id = $1`,
      [id],
    );
    const records = Array.from({ length: 500 }, () => recordOf(eventOf(id), new Date()));
    const control = new ControlPool(database.connection);
    const [read] = await control.transaction(async (sql) => {
      await appendToChains(sql, records, new Map(records.map((record, at) => [record.id, 59_000 + at])));
      return sql<{ rows: string }[]>`
        select seq_tup_read + idx_tup_fetch as rows from pg_stat_xact_user_tables where relid = 'postern.audit_blocks'::regclass`;
    });
    await control.close();
    expect(Number(read?.rows)).toSatisfy((rows: number) => rows >= 500 && rows < 5_000);
    await database.query('delete from postern.audit_blocks where organization_id = $1', [id]);
  });
});

describe('a chain', () => {
  test('is whole when it was not changed', async () => {
    const id = await organizationWith(3);
    const [head] = await list(id);
    expect(await verify(id)).toEqual({ ok: true, count: 4, headSeq: 4, headHash: head?.hash });
  });

  test('is whole when several processes write it at once', async () => {
    const ids = [await organizationWith(0), await organizationWith(0), await organizationWith(0)];
    const others = await Promise.all([1, 2, 3].map(() => openCatalog(database)));
    for (let round = 0; round < 20; round++) {
      await Promise.all(
        others.map(({ catalog }, process) => {
          // Each process meets the organizations in another order.
          for (let n = 0; n < 9; n++) catalog.audit.append(eventOf(ids[(n * (process + 1)) % 3] ?? '', { action: `process ${process}` }));
          return catalog.audit.flush();
        }),
      );
    }
    expect(others.flatMap(({ observations }) => observations.filter(({ name }) => name !== 'audit.written'))).toEqual([]);
    const verified = await Promise.all(ids.map(verify));
    expect(verified.every(({ ok }) => ok)).toBe(true);
    expect(verified.reduce((sum, { count }) => sum + count, 0)).toBe(3 + 20 * 3 * 9);
    await Promise.all(others.map(({ catalog }) => catalog.close()));
  });

  test.each<[string, (line: string) => string]>([
    ['action', edit(ACTION, 'nothing')],
    ['time', edit(OCCURRED_AT, '2020-01-01T00:00:00.000Z')],
    ['actor', edit(PARTY, { ...PARTY_OF_ORIGIN, userAgent: 'curl/8.5.0', actor: { keyId: null, keyPrefix: 'pst_abc' } })],
    ['address', edit(PARTY, { ...PARTY_OF_ORIGIN, userAgent: 'curl/8.5.0', sourceIp: '192.0.2.1' })],
    ['user agent', edit(PARTY, { ...PARTY_OF_ORIGIN, userAgent: 'curl/8.5.1' })],
    ['statement', edit(STATEMENT, { sql: 'select 2' })],
    ['outcome', edit(OUTCOME, { status: 'error', httpStatus: 200, sqlstate: null, rowCount: 1, durationMs: 1.5 })],
    ['id', edit(ID, 'aud_other')],
    ['hash', edit(HASH, '0'.repeat(64))],
  ])('tells which entry was changed: %s', async (_, change) => {
    const id = await organizationWith(4);
    await tamper(id, 3, change);
    const entry = (await list(id)).find(({ seq }) => seq === 3);
    expect(await verify(id)).toMatchObject({ ok: false, count: 2, headSeq: 5, firstBad: { seq: 3, id: entry?.id, reason: 'changed' } });
  });

  test('is whole where the same is only written otherwise', async () => {
    const id = await organizationWith(4);
    await tamper(id, 3, edit(PARTY, { userAgent: 'curl/8.5.0', ...PARTY_OF_ORIGIN }));
    expect(await verify(id)).toMatchObject({ ok: true, count: 5 });
  });

  test.each([
    ['is none any more', () => 'nothing'],
    ['is empty', () => ''],
    ['is of another kind', () => 'null'],
    ['refers to nothing', edit(PARTY, 1)],
  ])('tells that a line %s', async (_, change) => {
    const id = await organizationWith(4);
    await tamper(id, 3, change);
    expect(await verify(id)).toMatchObject({ ok: false, count: 2, firstBad: { seq: 3, reason: 'changed' } });
  });

  test('reports an entry with the position of another', async () => {
    const [later, earlier] = [await organizationWith(4), await organizationWith(4)];
    await tamper(later, 3, edit(SEQ, 4));
    expect(await verify(later)).toMatchObject({ ok: false, count: 2, firstBad: { seq: 3, reason: 'missing' } });
    await tamper(earlier, 3, edit(SEQ, 2));
    expect(await verify(earlier)).toMatchObject({ ok: false, count: 2, firstBad: { seq: 2, reason: 'changed' } });
  });

  test('tells that an entry was changed and hashed anew', async () => {
    const id = await organizationWith(4);
    const entry = (await list(id)).find(({ seq }) => seq === 3);
    if (entry === undefined) throw new Error('no entry');
    const { hash: _, ...changed } = { ...entry, action: 'nothing' };
    const hash = createHash('sha256').update(canonical(changed)).digest('hex');
    await tamper(id, 3, (line) => edit(HASH, hash)(edit(ACTION, 'nothing')(line)));
    expect(await verify(id)).toMatchObject({ ok: false, count: 3, firstBad: { seq: 4, reason: 'changed' } });
  });

  test.each([
    ['the first', 1, { count: 0, firstBad: { seq: 1, reason: 'missing' } }],
    ['one in the middle', 3, { count: 2, firstBad: { seq: 3, reason: 'missing' } }],
    ['the last', 5, { count: 4, firstBad: { seq: 5, reason: 'missing' } }],
  ])('tells that an entry was deleted: %s', async (_, seq, report) => {
    const id = await organizationWith(4);
    await tamper(id, seq, () => undefined);
    expect(await verify(id)).toMatchObject({ ok: false, headSeq: 5, ...report });
  });

  test.each([
    ['deleted', 'delete from postern.audit_blocks', { seq: 2, reason: 'missing' }],
    ['said to begin later', 'update postern.audit_blocks set first_seq = 3', { seq: 5, reason: 'changed' }],
    ['said to end earlier', 'update postern.audit_blocks set seq = 4', { seq: 5, reason: 'changed' }],
    ['said to follow another', `update postern.audit_blocks set prev_hash = sha256('x')`, { seq: 2, reason: 'changed' }],
    ['said to end with another hash', `update postern.audit_blocks set hash = sha256('x')`, { seq: 5, reason: 'changed' }],
    ['said to be older', `update postern.audit_blocks set first_at = '2020-01-01'`, { seq: 5, reason: 'changed' }],
    ['said to be younger', `update postern.audit_blocks set last_at = '2100-01-01'`, { seq: 5, reason: 'changed' }],
    ['said to be as old as can be', `update postern.audit_blocks set first_at = '-infinity'`, { seq: 5, reason: 'changed' }],
  ])('tells that a block was %s', async (_, change, firstBad) => {
    const id = await organizationWith(4);
    await database.query(`${change} where organization_id = $1 and seq = 5`, [id]);
    expect(await verify(id)).toMatchObject({ ok: false, firstBad });
  });

  test.each(['0', '-1', String(-(2n ** 63n))])('tells that entries were put before the first one, at %s', async (seq) => {
    const id = await organizationWith(1);
    await database.query(
      `insert into postern.audit_blocks (organization_id, first_seq, prev_hash, seq, hash, first_at, last_at, entries)
      select organization_id, first_seq, prev_hash, $2, hash, first_at, last_at, replace(entries, 'query', 'forged')
      from postern.audit_blocks where organization_id = $1 and seq = 2`,
      [id, seq],
    );
    const verification = await verify(id);
    await database.query('delete from postern.audit_blocks where organization_id = $1 and seq = $2', [id, seq]);
    expect(verification).toMatchObject({ ok: false, count: 0 });
  });

  test('tells that all entries were deleted', async () => {
    const id = await organizationWith(4);
    await database.query('delete from postern.audit_blocks where organization_id = $1', [id]);
    expect(await verify(id)).toMatchObject({ ok: false, count: 0, firstBad: { seq: 1, reason: 'missing' } });
  });

  test('tells that its head was deleted, moved back, or changed', async () => {
    const deleted = await organizationWith(1);
    await database.query('delete from postern.audit_heads where organization_id = $1', [deleted]);
    expect(await verify(deleted)).toMatchObject({ ok: false, firstBad: { reason: 'head_missing' } });

    const moved = await organizationWith(1);
    await database.query('update postern.audit_heads set seq = 1 where organization_id = $1', [moved]);
    expect(await verify(moved)).toMatchObject({ ok: false, firstBad: { seq: 2, reason: 'head_differs' } });

    const changed = await organizationWith(1);
    await database.query(`update postern.audit_heads set hash = sha256('x') where organization_id = $1`, [changed]);
    expect(await verify(changed)).toMatchObject({ ok: false, firstBad: { seq: 2, reason: 'head_differs' } });
  });

  test('cannot pass for the one of another organization', async () => {
    const [from, to] = [await organizationWith(2), await organizationWith(2)];
    await database.query('delete from postern.audit_blocks where organization_id = $1', [to]);
    await database.query('update postern.audit_blocks set organization_id = $2 where organization_id = $1', [from, to]);
    await database.query(
      'update postern.audit_heads h set hash = f.hash from postern.audit_heads f where h.organization_id = $2 and f.organization_id = $1',
      [from, to],
    );
    expect(await verify(to)).toMatchObject({ ok: false, firstBad: { seq: 1, reason: 'not_linked' } });
  });

  test('is verified beyond a page of entries', async () => {
    const id = await organizationWith(2_500);
    expect(await verify(id)).toMatchObject({ ok: true, count: 2_501 });
    await tamper(id, 2_400, () => undefined);
    expect(await verify(id)).toMatchObject({ ok: false, count: 2_399, firstBad: { seq: 2_400, reason: 'missing' } });
  });
});

describe('a list', () => {
  test('comes in pages, newest first, that do not shift when entries are added', async () => {
    const id = await organizationWith(6);
    const { audit } = opened.catalog;
    const first = await audit.list(id, { limit: 3 });
    expect(first.data.map(({ seq }) => seq)).toEqual([7, 6, 5]);
    expect(first).toMatchObject({ hasMore: true, nextCursor: expect.any(String) });
    audit.append(eventOf(id));
    const second = await audit.list(id, { limit: 3, after: first.nextCursor ?? '' });
    expect(second.data.map(({ seq }) => seq)).toEqual([4, 3, 2]);
    const third = await audit.list(id, { limit: 3, after: second.nextCursor ?? '' });
    expect(third).toMatchObject({ data: [{ seq: 1 }], hasMore: false, nextCursor: null });
    expect(await audit.list(id, { limit: 8 })).toMatchObject({ hasMore: false, nextCursor: null });
  });

  test('has fifty entries unless asked for more, and a thousand at most', async () => {
    const id = await organizationWith(60);
    const { audit } = opened.catalog;
    expect((await audit.list(id)).data).toHaveLength(50);
    expect((await audit.list(id, { limit: 1_000 })).data).toHaveLength(61);
    for (const limit of [0, -1, 1.5, 1_001]) await expect(audit.list(id, { limit })).rejects.toMatchObject({ kind: 'invalid_request' });
  });

  test.each(['', 'x', 'MS4w', '1.5', 'MS4xMDAwMDAwMDAwMDAwMDAwMDAwMDA'])('refuses a cursor that is none of its own: %j', async (after) => {
    await expect(opened.catalog.audit.list('org_any', { after })).rejects.toMatchObject({ kind: 'invalid_request' });
  });

  test('can be narrowed down', async () => {
    const { organization } = await newOrganization(opened.catalog);
    const { catalog, clock } = await openCatalog(database);
    const failed = { status: 'error', httpStatus: 400, sqlstate: '42601', rowCount: null, durationMs: 1 } as const;
    catalog.audit.append(eventOf(organization.id, { action: 'query', outcome: failed }));
    catalog.audit.append(eventOf(organization.id, { action: 'transaction', origin: { ...ORIGIN, requestId: 'req-2' } }));
    clock.offsetMs = DAY_MS;
    catalog.audit.append(eventOf(organization.id, { action: 'query' }));
    const seqs = async (filters: Parameters<typeof catalog.audit.list>[1]) =>
      (await catalog.audit.list(organization.id, filters)).data.map(({ seq }) => seq);

    expect(await seqs({})).toEqual([4, 3, 2, 1]);
    expect(await seqs({ action: 'query' })).toEqual([4, 2]);
    expect(await seqs({ outcome: 'error' })).toEqual([2]);
    expect(await seqs({ outcome: 'ok', action: 'query' })).toEqual([4]);
    expect(await seqs({ requestId: 'req-2' })).toEqual([3]);
    const [last] = await list(organization.id);
    const at = new Date(last?.occurredAt ?? 0);
    expect(await seqs({ since: at })).toEqual([4]);
    expect(await seqs({ until: at })).toEqual([3, 2, 1]);
    expect(await seqs({ action: "'; drop table postern.audit_blocks; --" })).toEqual([]);
    expect(await seqs({ action: '\0', requestId: '\ud800' })).toEqual([]);
    // What only looks like a member of an entry is none.
    for (const { action, requestId } of [
      { action: '%', requestId: '_' },
      { action: '","action":"query', requestId: '"' },
      { action: '"action":"transaction"', requestId: '\\' },
      { action: 'é\n', requestId: '\u{1F600}' },
    ]) {
      catalog.audit.append(eventOf(organization.id, { action, origin: { ...ORIGIN, requestId } }));
      const [added] = (await catalog.audit.list(organization.id)).data;
      expect([await seqs({ action }), await seqs({ requestId })]).toEqual([[added?.seq], [added?.seq]]);
    }
    expect(await seqs({ action: 'query' })).toEqual([4, 2]);
    expect(await seqs({ action: 'transaction' })).toEqual([3]);

    const page = await catalog.audit.list(organization.id, { action: 'query', limit: 1 });
    expect(await seqs({ action: 'query', limit: 1, after: page.nextCursor ?? '' })).toEqual([2]);
    await catalog.close();
  });

  test('is found by a request id among many', async () => {
    const { organization } = await newOrganization(opened.catalog);
    const ids = Array.from({ length: 600 }, (_, n) => (n % 3 === 0 ? undefined : `request ${n}`));
    for (const requestId of ids) {
      opened.catalog.audit.append(
        eventOf(organization.id, { origin: { surface: 'http', sourceIp: '::1', ...(requestId && { requestId }) } }),
      );
    }
    const found = async (requestId: string) => (await opened.catalog.audit.list(organization.id, { requestId })).data.map(({ seq }) => seq);
    for (const [n, id] of ids.entries()) if (id !== undefined && n % 50 === 1) expect(await found(id)).toEqual([n + 2]);
    expect(await found('request 600')).toEqual([]);
    // Where nobody knows which ids occur, all is looked through.
    await database.query('update postern.audit_blocks set request_filter = null where organization_id = $1', [organization.id]);
    expect(await found('request 599')).toEqual([601]);
  });

  test('is listed in parts if it takes long, without repeating or missing any', async () => {
    const id = await organizationWith(0);
    for (let batch = 0; batch < 12; batch++) {
      for (let n = 0; n < 30; n++) opened.catalog.audit.append(eventOf(id, { action: n % 7 === batch % 7 ? 'rare' : 'query' }));
      await opened.catalog.audit.flush();
    }
    const control = new ControlPool(database.connection);
    for (const filters of [{ action: 'rare' }, { limit: 100 }, { action: 'none' }]) {
      const inParts: AuditEntry[] = [];
      let after: string | null | undefined;
      let parts = 0;
      do {
        const page = await control.run((sql) => listEntries(sql, id, { limit: 1_000, ...filters, ...(after == null ? {} : { after }) }, 0));
        expect(page.hasMore).toBe(page.nextCursor !== null);
        inParts.push(...page.data);
        after = page.nextCursor;
        parts += 1;
      } while (after !== null);
      expect(inParts).toEqual((await opened.catalog.audit.list(id, { ...filters, limit: 1_000 })).data);
      expect(parts).toBeGreaterThan(filters.action === 'none' ? 0 : 2);
    }
    await control.close();
  });

  test('looks through a long log in parts, none of which takes a statement long', async () => {
    const id = await organizationWith(3, { action: 'old' });
    opened.catalog.audit.append(eventOf(id, { action: 'new' }));
    await opened.catalog.audit.flush();
    // As if there were millions of entries between the two blocks.
    await database.query(
      `update postern.audit_blocks set seq = seq + 3000000, first_seq = first_seq + 3000000, entries = replace(entries, ',5,', ',3000005,')
      where organization_id = $1 and seq = 5`,
      [id],
    );
    const { audit } = opened.catalog;
    const seqs = (entries: readonly AuditEntry[]) => entries.map(({ seq }) => seq);
    expect(seqs((await audit.list(id)).data)).toEqual([3_000_005, 4, 3, 2, 1]);
    expect(seqs((await audit.list(id, { action: 'old' })).data)).toEqual([4, 3, 2]);
    const control = new ControlPool(database.connection);
    const part = await control.run((sql) => listEntries(sql, id, { action: 'old' }, 0));
    expect(part).toMatchObject({ data: [], hasMore: true });
    expect(seqs((await audit.list(id, { action: 'old', after: part.nextCursor ?? '' })).data)).toEqual([4, 3, 2]);
    await control.close();
  });

  test('takes any time that has a date', async () => {
    const id = await organizationWith(1);
    const [before, behind] = [new Date('0000-01-01T00:00:00+01:00'), new Date('9999-12-31T23:59:59-01:00')];
    const count = async (filters: { since?: Date; until?: Date }) => (await opened.catalog.audit.list(id, filters)).data.length;
    expect([await count({ since: before }), await count({ until: before })]).toEqual([2, 0]);
    expect([await count({ since: behind }), await count({ until: behind })]).toEqual([0, 2]);
  });

  test('shows an organization its own entries only', async () => {
    const [mine, other] = [await organizationWith(1), await organizationWith(1)];
    const entries = [...(await list(mine)), ...(await list(other))];
    expect(entries.map(({ seq }) => seq)).toEqual([2, 1, 2, 1]);
    expect(new Set(entries.map(({ id }) => id)).size).toBe(4);
  });
});

describe('retention', () => {
  test('deletes what is older, and the chain stays verifiable from the oldest entry that is kept', async () => {
    const { organization } = await newOrganization(opened.catalog);
    const { id } = organization;
    // What the catalog deletes itself when it opens must not come first, by the clock that this test sets.
    const { catalog, clock } = await openCatalog(database, { auditDays: 100_000 });
    for (let n = 0; n < 3; n++) catalog.audit.append(eventOf(id));
    await catalog.audit.flush();
    clock.offsetMs = 91 * DAY_MS;
    for (let n = 0; n < 2; n++) catalog.audit.append(eventOf(id));
    await catalog.audit.flush();

    expect(await catalog.audit.deleteOlderThan(90)).toBeGreaterThanOrEqual(4);
    expect((await list(id)).map(({ seq }) => seq)).toEqual([6, 5]);
    expect(await verify(id)).toMatchObject({ ok: true, count: 2, headSeq: 6 });
    expect(await catalog.audit.deleteOlderThan(90)).toBe(0);

    catalog.audit.append(eventOf(id));
    expect(await catalog.audit.verify(id)).toMatchObject({ ok: true, count: 3, headSeq: 7 });
    await database.query('delete from postern.audit_blocks where organization_id = $1 and first_seq = 5', [id]);
    expect(await verify(id)).toMatchObject({ ok: false, count: 0, firstBad: { seq: 5, reason: 'missing' } });
    await catalog.close();
  });

  test('may delete all there is', async () => {
    const id = await organizationWith(2);
    const { catalog, clock } = await openCatalog(database);
    clock.offsetMs = 200 * DAY_MS;
    await catalog.audit.deleteOlderThan(90);
    // The catalog does so too when it opens; where it came first, it may still be at it.
    await expect.poll(() => verify(id)).toMatchObject({ ok: true, count: 0, headSeq: 3 });
    catalog.audit.append(eventOf(id));
    expect(await catalog.audit.verify(id)).toMatchObject({ ok: true, count: 1, headSeq: 4 });
    await catalog.close();
  });

  test('keeps an older entry that stands behind a younger one', async () => {
    const { organization } = await newOrganization(opened.catalog);
    const { catalog, clock } = await openCatalog(database);
    for (const days of [-100, 0, -100]) {
      clock.offsetMs = days * DAY_MS;
      catalog.audit.append(eventOf(organization.id));
    }
    await catalog.audit.flush();
    clock.offsetMs = 89 * DAY_MS;
    await catalog.audit.deleteOlderThan(90);
    expect((await list(organization.id)).map(({ seq }) => seq)).toEqual([4, 3, 2, 1]);
    expect(await verify(organization.id)).toMatchObject({ ok: true, count: 4 });
    await catalog.close();
  });

  test('happens by itself when the service starts', async () => {
    const id = await organizationWith(1);
    await database.query(`update postern.audit_blocks set last_at = now() - interval '100 days' where organization_id = $1`, [id]);
    const restarted = await openCatalog(database);
    await expect.poll(() => list(id)).toEqual([]);
    await restarted.catalog.close();
  });
});
