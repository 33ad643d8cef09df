import { createHash } from 'node:crypto';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { ControlDatabase } from '../../../src/catalog/database.ts';
import { migrate } from '../../../src/catalog/migrate.ts';
import { CATALOG_MIGRATIONS } from '../../../src/catalog/migrations.ts';
import { canonical } from './canonical.ts';
import { openCatalog, TestControlDatabase } from './control-database.ts';

/** Entries that earlier versions have written, a row for each: first with jsonb, then with json. */
let database: TestControlDatabase;
let control: ControlDatabase;
beforeAll(async () => {
  database = await TestControlDatabase.create();
  control = new ControlDatabase(database.connection);
});
afterAll(async () => {
  await control.close();
  await database.drop();
});

const ORGANIZATION = 'org_1';
const TEXTS = ['plain', '', '"', '\\', 'a\nb\tc\rd\be\ff', '\x01\x1f\x7f', '\u2028', 'é\u{1F600}', '{"action":"query"}', null];

function oldEntry(seq: number, prevHash: string) {
  const text = (n: number) => TEXTS[(seq + n) % TEXTS.length] ?? null;
  const entry = {
    id: `aud_${seq}`,
    seq,
    occurredAt: new Date(1_700_000_000_000 + seq * 7).toISOString(),
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

test('entries of earlier versions are in the log as they were, and the chain goes on behind them', async () => {
  await migrate(control, CATALOG_MIGRATIONS.slice(0, 4));
  const start = createHash('sha256').update(ORGANIZATION).digest('hex');
  await database.query(
    `insert into postern.organizations (id, name, email, email_key, status, provisioner, placement, created_at)
    values ($1, 'Old', 'a@b.c', 'a@b.c', 'active', 0, '{}', now())`,
    [ORGANIZATION],
  );
  const entries = [];
  for (let seq = 1, prevHash = start; seq <= 300; seq += 1) {
    if (seq === 200) await migrate(control, CATALOG_MIGRATIONS.slice(0, 5));
    const entry = oldEntry(seq, prevHash);
    await insert(entry);
    entries.push(entry);
    prevHash = entry.hash;
  }
  await database.query(
    `insert into postern.audit_heads select $1, 300, hash, 0, sha256($1::text::bytea) from postern.audit_entries where seq = 300`,
    [ORGANIZATION],
  );
  const { catalog } = await openCatalog(database, { auditDays: 100_000 });
  expect(await catalog.audit.verify(ORGANIZATION)).toMatchObject({ ok: true, count: 300, headSeq: 300 });
  expect((await catalog.audit.list(ORGANIZATION, { limit: 1_000 })).data.reverse()).toEqual(entries);
  expect((await catalog.audit.list(ORGANIZATION, { outcome: 'ok', action: 'plain', limit: 1_000 })).data.reverse()).toEqual(
    entries.filter(({ action, outcome }) => action === 'plain' && outcome.status === 'ok'),
  );
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
