import { createHash } from 'node:crypto';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { ControlPool } from '../../../../src/catalog/control-pool.ts';
import { CATALOG_MIGRATIONS, migrate } from '../../../../src/catalog/migrations.ts';
import { openCatalog, TestControlDatabase } from '../control-database.ts';
import { canonical } from './canonical.ts';

/** Entries that earlier versions have written, a row for each: first with jsonb, then with json. */
let database: TestControlDatabase;
let control: ControlPool;
beforeEach(async () => {
  database = await TestControlDatabase.create();
  control = new ControlPool(database.connection);
});
afterEach(async () => {
  await control.close();
  await database.drop();
});

const DAY_MS = 86_400_000;
const ORGANIZATION = 'org_1';
const CHAIN_START = createHash('sha256').update(ORGANIZATION).digest('hex');
const TEXTS = ['plain', '', '"', '\\', 'a\nb\tc\rd\be\ff', '\x01\x1f\x7f', '\u2028', 'é\u{1F600}', '{"action":"query"}', null];

function oldEntry(seq: number, prevHash: string, occurredAtMs = 1_700_000_000_000 + seq * 7) {
  const text = (n: number) => TEXTS[(seq + n) % TEXTS.length] ?? null;
  const entry = {
    id: `aud_${seq}`,
    seq,
    occurredAt: new Date(occurredAtMs).toISOString(),
    action: text(0) ?? 'query',
    surface: seq % 2 === 0 ? 'http' : 'wire',
    actor: { keyId: text(1), keyPrefix: text(2) },
    sourceIp: text(3),
    userAgent: text(4),
    applicationName: text(5),
    requestId: text(6),
    ...(seq % 3 === 0
      ? {}
      : { statement: { sql: text(7) ?? '', sqlHash: 'abc', command: text(8), paramCount: seq % 4 === 0 ? null : seq } }),
    ...(seq % 5 === 0 ? { session: { statements: 1, bytesIn: 2, bytesOut: 3_000_000_000, reason: text(9) ?? 'terminated' } } : {}),
    outcome: {
      status: seq % 2 === 0 ? 'ok' : 'error',
      httpStatus: seq % 2 === 0 ? 200 : null,
      sqlstate: text(10),
      rowCount: seq,
      durationMs: [0, 0.001, 1.5, 12_345.678, null][seq % 5] ?? null,
    },
    prevHash,
  };
  return { ...entry, hash: createHash('sha256').update(canonical(entry)).digest('hex') };
}

async function insert(entry: ReturnType<typeof oldEntry>): Promise<void> {
  const { actor, statement, session, outcome } = entry;
  await database.query(
    `insert into postern.audit_entries values
      ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, decode($16, 'hex'), decode($17, 'hex'))`,
    [
      ...[ORGANIZATION, entry.seq, entry.id, entry.occurredAt, entry.action, entry.surface, actor.keyId, actor.keyPrefix, entry.sourceIp],
      ...[entry.userAgent, entry.applicationName, entry.requestId, statement && canonical(statement), session && canonical(session)],
      ...[canonical(outcome), entry.prevHash, entry.hash],
    ],
  );
}

async function insertOrganization(): Promise<void> {
  await database.query(
    `insert into postern.organizations (id, name, email, email_key, status, provisioner, placement, created_at)
    values ($1, 'Old', 'a@b.c', 'a@b.c', 'active', 0, '{}', now())`,
    [ORGANIZATION],
  );
}

/** The head of a chain that ends with the last of the entries. */
async function insertHead(): Promise<void> {
  await database.query(
    `insert into postern.audit_heads
    select $1, seq, hash, 0, sha256($1::text::bytea) from postern.audit_entries order by seq desc limit 1`,
    [ORGANIZATION],
  );
}

test('entries of earlier versions stay as they were, and the chain continues after them', async () => {
  await migrate(control, CATALOG_MIGRATIONS.slice(0, 4));
  await insertOrganization();
  const entries = [];
  for (let seq = 1, prevHash = CHAIN_START; seq <= 300; seq += 1) {
    if (seq === 200) await migrate(control, CATALOG_MIGRATIONS.slice(0, 5));
    const entry = oldEntry(seq, prevHash);
    await insert(entry);
    entries.push(entry);
    prevHash = entry.hash;
  }
  await insertHead();
  const { catalog } = await openCatalog(database, { auditDays: 100_000 });
  expect(await catalog.audit.verify(ORGANIZATION)).toMatchObject({ ok: true, count: 300, headSeq: 300 });
  expect((await catalog.audit.list(ORGANIZATION, { limit: 1_000 })).data.reverse()).toEqual(entries);
  expect((await catalog.audit.list(ORGANIZATION, { outcome: 'ok', action: 'plain', limit: 1_000 })).data.reverse()).toEqual(
    entries.filter(({ action, outcome }) => action === 'plain' && outcome.status === 'ok'),
  );
  for (const text of TEXTS.filter((action) => action !== null)) {
    expect((await catalog.audit.list(ORGANIZATION, { action: text, limit: 1_000 })).data).toEqual(
      entries.filter(({ action }) => action === text).reverse(),
    );
    expect((await catalog.audit.list(ORGANIZATION, { requestId: text, limit: 1_000 })).data).toEqual(
      entries.filter(({ requestId }) => requestId === text).reverse(),
    );
  }
  const origin = { surface: 'http', sourceIp: '::1' } as const;
  catalog.audit.append({
    organizationId: ORGANIZATION,
    action: 'query',
    origin,
    outcome: { status: 'ok', httpStatus: 200, sqlstate: null, rowCount: 0, durationMs: 1 },
  });
  expect(await catalog.audit.verify(ORGANIZATION)).toMatchObject({ ok: true, count: 301 });
  await catalog.close();
});

test('waits for what another process is about to commit', async () => {
  await migrate(control, CATALOG_MIGRATIONS.slice(0, 5));
  await insertOrganization();
  await database.query('begin');
  await insert(oldEntry(1, CHAIN_START));
  await insertHead();
  const migrated = migrate(control);
  await expect
    .poll(() => database.query(`select from pg_locks where relation = 'postern.audit_entries'::regclass and not granted`))
    .toHaveLength(1);
  await database.query('commit');
  await migrated;
  const { catalog } = await openCatalog(database, { auditDays: 100_000 });
  expect(await catalog.audit.verify(ORGANIZATION)).toMatchObject({ ok: true, count: 1 });
  await catalog.close();
});

test('entries are kept no more than a day longer for being in one block with younger ones', async () => {
  await migrate(control, CATALOG_MIGRATIONS.slice(0, 5));
  await insertOrganization();
  const start = Date.now() - 20 * DAY_MS;
  // Of two processes' entries those of the later one may be the earlier ones.
  const days = [0, 5, 4.9, 10, 10, 9, 15];
  for (let at = 0, prevHash = CHAIN_START; at < days.length; at++) {
    const entry = oldEntry(at + 1, prevHash, start + (days[at] ?? 0) * DAY_MS);
    await insert(entry);
    prevHash = entry.hash;
  }
  await insertHead();
  const { catalog } = await openCatalog(database, { auditDays: 100_000 });
  expect(await catalog.audit.verify(ORGANIZATION)).toMatchObject({ ok: true, count: days.length });
  expect(await catalog.audit.deleteOlderThan(13)).toBe(3);
  expect(await catalog.audit.verify(ORGANIZATION)).toMatchObject({ ok: true, count: days.length - 3 });
  await catalog.close();
});

test('an entry whose json has several lines is one all the same', async () => {
  await migrate(control, CATALOG_MIGRATIONS.slice(0, 5));
  await insertOrganization();
  await insert(oldEntry(1, CHAIN_START));
  await insertHead();
  await database.query(`update postern.audit_entries set outcome = replace(outcome::text, ',', e',\n')::json`);
  const { catalog } = await openCatalog(database, { auditDays: 100_000 });
  expect(await catalog.audit.verify(ORGANIZATION)).toMatchObject({ ok: true, count: 1 });
  await catalog.close();
});

test('a migration that fails changes nothing', async () => {
  await migrate(control, CATALOG_MIGRATIONS.slice(0, 5));
  await insertOrganization();
  await insert(oldEntry(1, CHAIN_START));
  const failing = { name: '007', sql: 'select 1 / 0' };
  await expect(migrate(control, [...CATALOG_MIGRATIONS, failing])).rejects.toMatchObject({ code: '22012' });
  expect(await database.query('select seq from postern.audit_entries')).toEqual([{ seq: '1' }]);
  expect(await database.query(`select to_regclass('postern.audit_blocks') as blocks`)).toEqual([{ blocks: null }]);
});
