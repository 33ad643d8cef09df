import { afterAll, beforeAll, expect, test } from 'vitest';
import { newOrganization, ORIGIN, openCatalog, type TestCatalog, TestControlDatabase } from '../control-database.ts';

/* Logs of which somebody who can write to the control database has changed a line. */

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

/** A block for the sign-up, and two of four entries. */
async function newLog(): Promise<string> {
  const { organization } = await newOrganization(opened.catalog);
  for (let block = 0; block < 2; block++) {
    for (let n = 0; n < 4; n++) {
      opened.catalog.audit.append({
        organizationId: organization.id,
        action: 'query',
        origin: ORIGIN,
        actor: { keyId: 'key_1', keyPrefix: 'pst_abc' },
        outcome: { status: 'ok', httpStatus: 200, sqlstate: null, rowCount: 1, durationMs: 1.5 },
      });
    }
    await opened.catalog.audit.flush();
  }
  return organization.id;
}

/** @param line of the block of entries 2 to 5, from 0 */
async function change(id: string, line: number, to: (line: string) => string): Promise<void> {
  const where = 'where organization_id = $1 and seq = 5';
  const [block] = await database.query<{ entries: string }>(`select entries from postern.audit_blocks ${where}`, [id]);
  const entries = block?.entries.split('\n').map((text, at) => (at === line ? to(text) : text));
  await database.query(`update postern.audit_blocks set entries = $2 ${where}`, [id, entries?.join('\n')]);
}

async function listed(id: string, filters: Parameters<TestCatalog['catalog']['audit']['list']>[1] = {}) {
  const { data, nextCursor, ...others } = await opened.catalog.audit.list(id, filters);
  return { seqs: data.map(({ seq }) => seq), nextCursor, ...others };
}

const WHOLE = { seqs: [9, 8, 7, 6, 5, 4, 3, 2, 1], hasMore: false, nextCursor: null };

/** Writes something else in a place of an entry. */
const edit = (place: number, value: unknown) => (line: string) =>
  JSON.stringify((JSON.parse(line) as unknown[]).map((old, at) => (at === place ? value : old)));
const [SEQ, PARTY, OUTCOME] = [1, 6, 9];

test.each<[string, (line: string) => string]>([
  ['is none any more', () => 'nothing'],
  ['is empty', () => ''],
  ['is of another kind', () => 'null'],
  ['has nobody who did it', edit(PARTY, null)],
  ['refers to nothing', edit(PARTY, 7)],
  ['says to be at another place', edit(SEQ, 300)],
  ['says to be nowhere', edit(SEQ, 'x')],
])('a line that %s keeps nobody from the entries before and behind its block', async (_, to) => {
  const id = await newLog();
  expect(await listed(id)).toEqual(WHOLE);
  await change(id, 2, to);
  const unreadable = [{ fromSeq: 4, toSeq: 5 }];
  expect(await listed(id)).toEqual({ ...WHOLE, seqs: [9, 8, 7, 6, 3, 2, 1], unreadable });
  expect(await listed(id, { outcome: 'ok', action: 'query' })).toEqual({ ...WHOLE, seqs: [9, 8, 7, 6, 3, 2], unreadable });
  expect((await opened.catalog.audit.verify(id)).ok).toBe(false);
});

test('an entry without an outcome is not found by one', async () => {
  const id = await newLog();
  await change(id, 0, edit(OUTCOME, null));
  expect(await listed(id, { outcome: 'ok' })).toEqual({ ...WHOLE, seqs: [9, 8, 7, 6, 1], unreadable: [{ fromSeq: 2, toSeq: 5 }] });
});

test('missing lines are reported, too', async () => {
  const id = await newLog();
  await database.query(`update postern.audit_blocks set entries = split_part(entries, E'\\n', 1) where organization_id = $1 and seq = 5`, [
    id,
  ]);
  expect(await listed(id)).toEqual({ ...WHOLE, seqs: [9, 8, 7, 6, 2, 1], unreadable: [{ fromSeq: 3, toSeq: 5 }] });
});

test('unreadable entries are reported on one page only', async () => {
  const id = await newLog();
  await change(id, 2, () => 'nothing');
  const first = await listed(id, { limit: 4 });
  expect(first).toEqual({ seqs: [9, 8, 7, 6], hasMore: true, nextCursor: expect.any(String) });
  const second = await listed(id, { limit: 1, after: first.nextCursor ?? '' });
  expect(second).toEqual({ seqs: [3], hasMore: true, nextCursor: expect.any(String), unreadable: [{ fromSeq: 4, toSeq: 5 }] });
  expect(await listed(id, { after: second.nextCursor ?? '' })).toEqual({ seqs: [2, 1], hasMore: false, nextCursor: null });
});
