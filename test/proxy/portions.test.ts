import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { encodeFrontend } from '../conversations/frontend-message.ts';
import { readReplies } from '../conversations/replies.ts';
import type { WireClient } from '../conversations/wire-client.ts';
import { openSession } from '../support/raw-session.ts';
import { startTestService, type TestService } from '../support/service.ts';

let service: TestService;
let client: WireClient;
beforeAll(async () => {
  service = await startTestService();
  client = await openSession(service, await service.signUp());
});
afterAll(() => service.close());

/** @returns what is answered, up to the end of the last of so many requests */
async function ask(lines: readonly string[], requests = 1): Promise<string[]> {
  await client.write(Buffer.concat(lines.map(encodeFrontend)));
  return await readReplies(client, 'ReadyForQuery', requests);
}

const times = (count: number, lines: (i: number) => readonly string[]) => Array.from({ length: count }, (_, i) => lines(i)).flat();
const NOT_THERE = expect.stringContaining('26000');
const BOUND = ['BindComplete', 'ReadyForQuery I'];

describe('what is much work is done in portions, to the same end', () => {
  it('names that are taken away and given again, with many more behind them', async () => {
    const count = 400;
    const portals = times(count, (i) => [`Bind p${i} d []`]);
    const names = times(count, (i) => [`Execute p${i}`, `Parse n${i} SELECT ${i} AS a`]);
    const heard = await ask(['Parse d DEALLOCATE ALL', ...portals, ...names, 'Sync']);
    expect(heard).toEqual([
      'ParseComplete',
      ...times(count, () => ['BindComplete']),
      ...times(count, () => ['CommandComplete DEALLOCATE ALL', 'ParseComplete']),
      'ReadyForQuery I',
    ]);
    expect(await ask([`Bind "" n${count - 1} []`, 'Sync'])).toEqual(BOUND);
    expect(await ask([`Bind "" n${count - 2} []`, 'Sync'])).toEqual([NOT_THERE, 'ReadyForQuery I']);
  });

  it('all names taken away again and again with nothing in between, and given again behind that', async () => {
    await ask([...times(50, () => ['Query DEALLOCATE ALL']), 'Parse a SELECT 1 AS a', 'Sync'], 51);
    expect(await ask(['Bind "" a []', 'Sync'])).toEqual(BOUND);
    await ask(['Query DEALLOCATE ALL', 'Query DEALLOCATE ALL'], 2);
    expect(await ask(['Bind "" a []', 'Sync'])).toEqual([NOT_THERE, 'ReadyForQuery I']);
  });

  it('more names given in one go, behind all having been taken away, than a backend has room for', async () => {
    const count = 250;
    const names = times(count, (i) => [`Parse r${i} SELECT ${i} AS r`, ...(i % 10 === 9 ? ['Bind "" r0 []'] : [])]);
    const heard = await ask(['Parse d2 DEALLOCATE ALL', 'Bind "" d2 []', 'Execute ""', ...names, 'Bind "" r1 []', 'Sync']);
    expect(heard.filter((reply) => reply.startsWith('ErrorResponse'))).toEqual([]);
    for (const i of [1, ...Array(count).keys()]) expect([i, ...(await ask([`Bind "" r${i} []`, 'Sync']))]).toEqual([i, ...BOUND]);
  });

  it('large statements that a backend has no room for, bound one behind the other', async () => {
    const count = 240;
    const comment = 'x'.repeat(20_000);
    await ask([...times(count, (i) => [`Parse l${i} SELECT ${i} AS a /*${comment}*/`]), 'Sync']);
    const heard = await ask([...times(3 * count, (i) => [`Bind "" l${i % count} []`, 'Execute ""']), 'Sync']);
    expect(heard.filter((reply) => reply.startsWith('DataRow'))).toEqual(times(3 * count, (i) => [`DataRow ${i % count}`]));
    expect(heard.at(-1)).toBe('ReadyForQuery I');
  });

  it('thousands of statements that SQL may speak of', async () => {
    const count = 3_000;
    await ask([...times(count, (i) => [`Parse m${i} SELECT ${i} AS a`]), 'Sync']);
    const heard = await ask(
      times(10, (i) => [`Query EXECUTE m${i}`]),
      10,
    );
    expect(heard.filter((reply) => reply.startsWith('DataRow'))).toEqual(times(10, (i) => [`DataRow ${i}`]));
  });
});
