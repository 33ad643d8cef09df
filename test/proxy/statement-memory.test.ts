import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ClientStatements, STATEMENT_BOUNDS, StatementMemory } from '../../proxy/client-statements.ts';
import { auditedText } from '../../proxy/inspection.ts';
import { newServerStatement } from '../../src/backend/session-state.ts';
import { MemoryBudget, MemoryReservation } from '../../src/runtime/memory-budget.ts';
import { NO_TRAITS } from '../../src/syntax/session-traits.ts';
import { PLACEMENTS, startTestService, type TestOrganization, type TestService } from '../support/service.ts';

const MIB = 1_048_576;
const newHeld = () => new MemoryReservation(new MemoryBudget(STATEMENT_BOUNDS), 'org', 0);
const statement = (bytes: number) => ({ server: newServerStatement(Buffer.alloc(bytes)), traits: NO_TRAITS, signals: [], deallocates: [] });

it('what clients keep is counted until they give it up, are gone, or have it undone', () => {
  const kept = newHeld();
  const memory = new StatementMemory(kept);
  const session = { isOver: false };
  const [one, other] = [new ClientStatements(memory, session), new ClientStatements(memory, { isOver: false })];
  const shared = statement(10_000);
  one.set('a', shared);
  const alone = kept.bytes;
  expect(alone).toBeGreaterThan(10_000);
  other.set('b', shared);
  expect(kept.bytes).toBeGreaterThan(alone);
  expect(kept.bytes).toBeLessThan(alone + 1_000);
  one.delete('a');
  expect(kept.bytes).toBe(alone);
  const undo = other.set('b', statement(50_000));
  expect(kept.bytes).toBe(alone + 40_000);
  undo();
  expect(kept.bytes).toBe(alone);
  const late = other.delete('b');
  expect(kept.bytes).toBe(0);
  late();
  expect(kept.bytes).toBe(alone);
  other.clear();
  expect(kept.bytes).toBe(0);

  const tooLate = one.set('c', shared);
  one.set('d', shared);
  session.isOver = true;
  one.end();
  expect(kept.bytes).toBe(0);
  tooLate();
  one.set('e', shared);
  expect(kept.bytes).toBe(0);
});

it('there is no room for one more where the others take too much; a name in use needs none', () => {
  const kept = newHeld();
  const statements = new ClientStatements(new StatementMemory(kept), { isOver: false });
  for (let n = 0; n < 63; n += 1) statements.set(`s${n}`, statement(MIB));
  expect(statements.hasRoomFor('more', MIB / 2)).toBe(true);
  expect(statements.hasRoomFor('more', MIB)).toBe(false);
  expect(statements.hasRoomFor('s1', MIB)).toBe(true);
  statements.delete('s1');
  expect(statements.hasRoomFor('more', MIB)).toBe(true);
});

it('a large statement without a name is counted until it is another, and small ones always have room', () => {
  const kept = newHeld();
  const statements = new ClientStatements(new StatementMemory(kept), { isOver: false });
  const unnamed = (bytes: number) => ({
    definition: Buffer.alloc(bytes),
    changed: false,
    edits: [],
    traits: NO_TRAITS,
    signals: [],
    deallocates: [],
  });
  const [first, second] = [unnamed(500_000), unnamed(300_000)];
  statements.setUnnamed(first);
  statements.unnamedSettled(first);
  expect(kept.bytes).toBe(500_000);
  statements.setUnnamed(second);
  expect(kept.bytes).toBe(800_000);
  statements.unnamedUndone(second, false);
  expect(kept.bytes).toBe(500_000);
  statements.setUnnamed(second);
  statements.unnamedSettled(second);
  expect(kept.bytes).toBe(300_000);
  statements.setUnnamed({ ...unnamed(100_000), server: newServerStatement(Buffer.alloc(100_000)) });
  statements.unnamedSettled(statements.unnamed);
  expect(kept.bytes).toBe(0);
  statements.setUnnamed(unnamed(10_000));
  expect(kept.bytes).toBe(0);
  statements.setUnnamed(first);
  for (let n = 0; n < 63; n += 1) statements.set(`s${n}`, statement(MIB));
  expect(statements.hasRoomFor('', MIB)).toBe(false);
  expect(statements.hasRoomFor('', 10_000)).toBe(true);
  statements.end();
  expect(kept.bytes).toBe(0);
});

it('what is kept for the audit is counted with each name', () => {
  const kept = newHeld();
  const statements = new ClientStatements(new StatementMemory(kept), { isOver: false });
  const shared = statement(10_000);
  const watched = auditedText(`create table ${'x'.repeat(4_000)}()`);
  for (let n = 0; n < 20; n += 1) statements.set(`s${n}`, { ...shared, watched });
  expect(kept.bytes).toBeGreaterThan(90_000);
  statements.clear();
  expect(kept.bytes).toBe(0);
});

it('names as long as statements are counted, too', () => {
  const kept = newHeld();
  new ClientStatements(new StatementMemory(kept), { isOver: false }).set('n'.repeat(MIB), statement(1));
  expect(kept.bytes).toBeGreaterThan(MIB);
});

/** As many as may be kept, and a few more. */
const COUNT = 78;

describe.each(PLACEMENTS)('placement %s', (POSTERN_PLACEMENT) => {
  let service: TestService;
  let organization: TestOrganization;
  beforeAll(async () => {
    service = await startTestService({ POSTERN_BACKENDS_PER_TENANT: '3', POSTERN_PLACEMENT });
    organization = await service.signUp();
  });
  afterAll(() => service.close());

  it('a client may name more than is kept: the rest stays where it has been prepared', async () => {
    const client = await service.connect(organization);
    await client.query('CREATE TABLE public.t AS SELECT 7::int4 AS b');
    const padding = ' '.repeat(900_000);
    const named = (n: number) => ({ name: `s${n}`, text: `SELECT ${n}::int4 AS a, b FROM public.t${padding}` });
    for (let n = 0; n < COUNT; n += 1) expect((await client.query(named(n))).rows).toEqual([{ a: n, b: 7 }]);
    for (const n of [0, COUNT - 1, 1, COUNT - 2]) expect((await client.query(named(n))).rows).toEqual([{ a: n, b: 7 }]);
    await expect(client.query({ name: 'bad', text: 'SELECT b FROM public.missing' })).rejects.toMatchObject({
      code: '42P01',
      message: 'relation "public.missing" does not exist',
      position: '15',
    });

    const other = await service.connect(organization);
    const taken = { name: `s${COUNT - 1}`, text: 'SELECT b FROM public.t WHERE b = $1', values: [7] };
    for (let round = 0; round < 2; round += 1) expect((await other.query(taken)).rows).toEqual([{ b: 7 }]);
    await other.query(`DEALLOCATE "${taken.name}"`);
    await expect(other.query(taken)).rejects.toMatchObject({ code: '26000' });
    expect((await client.query(named(COUNT - 1))).rows).toEqual([{ a: COUNT - 1, b: 7 }]);
    await client.end();
    await other.end();

    const next = await service.connect(organization);
    for (let round = 0; round < 2; round += 1) expect((await next.query(taken)).rows).toEqual([{ b: 7 }]);
    await next.end();
  });
});
