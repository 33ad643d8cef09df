import { afterEach, describe, expect, it } from 'vitest';
import { startNumberingWriters } from '../support/numbering-writers.ts';
import { type ServerPair, startServerPair } from '../support/server-process.ts';
import { startTestService, type TestService } from '../support/service.ts';

let pair: ServerPair;
let service: TestService | undefined;
afterEach(async () => {
  await service?.close();
  service = undefined;
  await pair.remove();
});

/** What is taken from URLs of single hosts. */
function urlOf(...hosts: readonly string[]): string {
  const at = hosts.map((url) => /@([^/]+)\//.exec(url)?.[1]).join();
  return `${hosts[0]?.replace(/@.*/s, '')}@${at}/postgres?target_session_attrs=read-write`;
}

describe('when the primary of a URL with two hosts', () => {
  it.each([
    ['dies', (own: ServerPair) => own.primary.kill()],
    ['hangs', (own: ServerPair) => own.primary.signal('SIGSTOP')],
  ])('%s, the promoted standby serves, nothing acknowledged is lost, and idle clients stay', async (_how, fail) => {
    pair = await startServerPair();
    // The standby comes first, and is passed over.
    const running = await startTestService({ DATABASE_URL: urlOf(pair.standby.url, pair.primary.url) });
    service = running;
    const organization = await running.signUp();
    const idle = await running.connect(organization);
    await idle.query('SELECT 1');
    const writers = await startNumberingWriters(running, organization);
    await writers.allWrote(5);

    await fail(pair);
    await pair.promote();
    const promotedAt = performance.now();
    await writers.allWrote(1);
    if (process.env.TEST_TIMES !== undefined) console.log(`served after ${Math.round(performance.now() - promotedAt)} ms`);
    await writers.allWrote(5);
    await writers.stop();

    const { lost, repeated, rows } = await writers.compare();
    expect({ lost, repeated }).toEqual({ lost: [], repeated: [] });
    expect((await idle.query('SELECT count(*)::int AS rows FROM written')).rows).toEqual([{ rows }]);
    await idle.end();
    expect((await running.signUp()).id).toMatch(/^org_/);
    expect(running.observations).toContainEqual(
      expect.objectContaining({ message: expect.stringMatching(/ is served from \S+standby\S+ in place of \S+primary\S+$/) }),
    );
  });
});
