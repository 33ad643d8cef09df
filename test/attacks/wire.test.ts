import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { encodeFrontend } from '../conversations/frontend-message.ts';
import { WireClient } from '../conversations/wire-client.ts';
import { openSession } from '../support/raw-session.ts';
import { PLACEMENTS } from '../support/service.ts';
import { check } from './answers.ts';
import { ENTRANCES, readReply } from './entrances.ts';
import { MESSAGE_ATTACKS } from './messages.ts';
import { makeScene, type Scene, TRACES } from './scene.ts';
import { LOGIN_ATTACKS } from './startup.ts';

const READ_SECRETS = 'SELECT secret FROM secrets';

describe.each(PLACEMENTS)('with a %s for each organization', (kind) => {
  let scene: Scene;
  beforeAll(async () => {
    scene = await makeScene(kind);
  });
  afterAll(() => scene.close());

  describe.each(Object.entries(ENTRANCES))('the %s door does not let the intruder in', (door, enter) => {
    it.each(LOGIN_ATTACKS.map((attack) => [attack.way, attack] as const))('%s', async (_way, { parameters, scramUser, comesTo }) => {
      const { service, intruder, victim } = scene;
      const pretence = {
        parameters: parameters(scene),
        key: intruder.apiKey,
        ...(scramUser === undefined ? {} : { scramUser: scramUser(scene) }),
      };
      const { inside, reply } = await enter(service, pretence, comesTo === 'itself' ? whoAmI(scene) : READ_SECRETS);
      const [isInside, sqlstate] = { itself: [true, '00000'], nothing: [true, '42P01'] }[comesTo] ?? [false, comesTo];
      expect([inside, reply.sqlstate, reply.message]).toEqual([isInside, sqlstate, expect.any(String)]);
      expect(reply.whole).not.toMatch(TRACES);
      if (comesTo === 'itself') expect(reply.rows).toEqual([['itself']]);

      const owner = await enter(service, { parameters: [['user', victim.id]], key: victim.apiKey }, READ_SECRETS);
      expect(owner.reply.whole, `${door} door`).toMatch(TRACES);
    });
  });

  describe('no message of the intruder opens anything', () => {
    it.each(MESSAGE_ATTACKS.map((attack) => [attack.way, attack] as const))('%s', async (_way, { send, answer, asStranger }) => {
      const { service, intruder, victim } = scene;
      const client = asStranger ? await WireClient.open('127.0.0.1', service.wirePort) : await openSession(service, intruder);
      await client.write(Buffer.concat(send(scene).map(encodeFrontend)));
      check('wire', await readReply(client), 'database' in answer ? answer[kind] : answer);
      client.disconnect();

      const owner = await openSession(service, victim);
      await owner.write(encodeFrontend(`Query ${READ_SECRETS}`));
      expect((await readReply(owner)).whole).toMatch(TRACES);
      owner.disconnect();
    });
  });
});

function whoAmI({ intruder: { id } }: Scene): string {
  return `SELECT CASE WHEN session_user = '${id}' AND current_user = '${id}' AND current_setting('role') = 'none' THEN 'itself' ELSE 'another' END`;
}
