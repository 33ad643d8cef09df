import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { encodeFrontend } from '../conversations/frontend-message.ts';
import { eventually } from '../support/eventually.ts';
import { openSession } from '../support/raw-session.ts';
import { PLACEMENTS, startTestService, type TestOrganization, type TestService } from '../support/service.ts';
import { DOORS } from './doors.ts';
import { readReply } from './entrances.ts';
import { LEFTOVERS } from './leftovers.ts';
import { connectSuperuser } from './scene.ts';

/** Each organization has one backend: whoever comes next gets the one that was there before, or a new one. */
const ONE_BACKEND = { POSTERN_BACKENDS_PER_TENANT: '1' };

describe.each(PLACEMENTS)('with a %s for each organization', (placement) => {
  let service: TestService;
  let organization: TestOrganization;
  let other: TestOrganization;
  beforeAll(async () => {
    service = await startTestService({ POSTERN_PLACEMENT: placement, ...ONE_BACKEND });
    [organization, other] = [await service.signUp(), await service.signUp()];
    for (const each of [organization, other]) {
      const client = await service.connect(each);
      await client.query("CREATE TABLE everybodys AS SELECT 'everybody' AS who; CREATE SEQUENCE numbers");
      await client.end();
    }
  });
  afterAll(() => service.close());

  /** What is found there: a value, or the SQLSTATE of an error. */
  async function look(door: keyof typeof DOORS, who: TestOrganization, sql: string): Promise<string | null> {
    const { sqlstate, rows } = await DOORS[door](service, who, sql);
    return sqlstate === '00000' ? (rows[0]?.[0] ?? null) : sqlstate;
  }

  describe.each(LEFTOVERS.map((leftover) => [leftover.what, leftover] as const))(
    '%s',
    (_what, { leave, look: question, found, clean, wireOnly }) => {
      const comers = [
        ['the next at the wire', 'wire'],
        ['the next over HTTP', 'http'],
      ] as const;

      it.each(comers)('that was left at the wire is not found by %s', async (_who, door) => {
        const first = await service.connect(organization);
        try {
          await first.query(leave);
          const { rows } = await first.query({ text: question, rowMode: 'array' });
          expect(rows).toEqual([[found]]);
          expect(await look(door, other, question)).toBe(clean);
        } finally {
          await first.end();
        }
        expect(await look(door, organization, question)).toBe(clean);
      });

      it.each(wireOnly ? [] : comers)('that was left over HTTP is not found by %s', async (_who, door) => {
        const reply = await DOORS.http(service, organization, [leave, question]);
        expect(reply.rows).toEqual([[found]]);
        expect((await service.query(organization, leave)).status).toBe(200);
        expect(await look(door, organization, question)).toBe(clean);
        expect(await look(door, other, question)).toBe(clean);
      });
    },
  );

  it('the seed of random numbers that was left at the wire is not found by the next', async () => {
    const seed = 'SELECT setseed(0.42)';
    const { rows } = await DOORS.http(service, organization, [seed, 'SELECT random()::text']);
    await DOORS.wire(service, organization, seed);
    expect(await look('wire', organization, 'SELECT random()::text')).not.toBe(rows[0]?.[0]);
  });

  it.each(['wire', 'http'] as const)('an advisory lock that was left at the %s door is gone with who took it', async (door) => {
    const superuser = await connectSuperuser('postgres');
    const held = async () => (await superuser.query(ADVISORY_LOCKS, [organization.id])).rowCount;
    await eventually('nobody holds one of before', async () => (await held()) === 0);
    const holder = await service.connect(organization);
    await holder.query('SELECT pg_advisory_lock(4711)');
    expect(await held()).toBe(1);
    await holder.end();
    await DOORS[door](service, organization, 'SELECT pg_advisory_lock(4711)');
    await eventually('nobody holds it', async () => (await held()) === 0);
    await superuser.end();
  });

  it('the unnamed statement of one is not there for another', async () => {
    const [first, second] = [await openSession(service, organization), await openSession(service, organization)];
    await first.write(encode('Parse "" [] SELECT who FROM everybodys', 'Sync'));
    expect((await readReply(first)).sqlstate).toBe('00000');
    await second.write(encode('Bind "" "" []', 'Execute ""', 'Sync'));
    expect((await readReply(second)).sqlstate).toBe('26000');
    await first.write(encode('Bind "" "" []', 'Execute ""', 'Sync'));
    expect((await readReply(first)).rows).toEqual([['everybody']]);
    first.disconnect();
    second.disconnect();
  });

  it('a transaction that was left open is rolled back before the next comes', async () => {
    const first = await openSession(service, organization);
    await first.write(encode("Query BEGIN; INSERT INTO everybodys VALUES ('half'); SELECT who FROM everybodys WHERE who = 'half'"));
    expect((await readReply(first)).rows).toEqual([['half']]);
    first.reset();
    expect(await look('http', organization, "SELECT count(*)::text FROM everybodys WHERE who = 'half'")).toBe('0');
    expect(await look('wire', organization, "SELECT count(*)::text FROM everybodys WHERE who = 'half'")).toBe('0');
  });
});

/** The backends of an organization that hold advisory locks. */
const ADVISORY_LOCKS = `SELECT FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE locktype = 'advisory' AND usename = $1`;

function encode(...messages: string[]): Buffer {
  return Buffer.concat(messages.map(encodeFrontend));
}
