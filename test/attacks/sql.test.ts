import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { PLACEMENTS } from '../support/service.ts';
import { check } from './answers.ts';
import type { Answer, Attack, Proof } from './attack.ts';
import { CATALOG_ATTACKS, NAME_ATTACKS } from './catalogs.ts';
import { DOORS } from './doors.ts';
import { IDENTITY_ATTACKS } from './identities.ts';
import { ROW_ATTACKS } from './rows.ts';
import { type Kind, makeScene, type Scene, TRACES } from './scene.ts';
import { SERVER_ATTACKS } from './server.ts';

const THEMES: Readonly<Record<string, readonly Attack[]>> = {
  'at the rows of another': ROW_ATTACKS,
  'at being somebody else': IDENTITY_ATTACKS,
  'at the catalogs': CATALOG_ATTACKS,
  'at what is known of others': NAME_ATTACKS,
  'at the server': SERVER_ATTACKS,
};

describe.each(PLACEMENTS)('with a %s for each organization', (kind) => {
  let scene: Scene;
  beforeAll(async () => {
    scene = await makeScene(kind);
  });
  afterAll(() => scene.close());

  it('what the victim itself has granted to everybody can be had by its number, where there is one database: visible by design', async () => {
    const { service, intruder, owner } = scene;
    const { rows: objects } = await owner.query<{ id: string }>("SELECT lo_from_bytea(0, 'for everybody')::text AS id");
    const object = objects[0]?.id;
    await owner.query(`GRANT SELECT ON LARGE OBJECT ${object} TO PUBLIC`);
    await owner.query('CREATE SEQUENCE for_everybody START 7; GRANT USAGE ON SEQUENCE for_everybody TO PUBLIC');
    const { rows } = await owner.query<{ id: string }>("SELECT 'for_everybody'::regclass::oid AS id");
    const inShared = [['for everybody'], ['7']];
    for (const door of Object.values(DOORS)) {
      const content = await door(service, intruder, `SELECT convert_from(lo_get(${object}), 'UTF8')`);
      const number = await door(service, intruder, `SELECT nextval(${rows[0]?.id}::oid::regclass)::text`);
      if (kind === 'database') expect([content.sqlstate, number.sqlstate]).toEqual(['42704', 'XX000']);
      else expect([content.rows[0], number.rows[0]]).toEqual(inShared);
      await owner.query('ALTER SEQUENCE for_everybody RESTART');
    }
  });

  describe.each(Object.entries(THEMES))('the intruder gets nowhere %s', (_theme, attacks) => {
    it.each(attacks.map((attack) => [attack.way, attack] as const))('%s', async (_way, { sql, answer, proof }) => {
      await prove(scene, proof);
      for (const [name, door] of Object.entries(DOORS)) {
        check(name, await door(scene.service, scene.intruder, sql(scene)), expectedAt(answer, kind, name));
      }
      await isUnharmed(scene);
    });
  });
});

function expectedAt(answer: Attack['answer'], kind: Kind, door: string): Answer {
  if ('database' in answer) return answer[kind];
  return 'wire' in answer ? answer[door === 'wire' ? 'wire' : 'http'] : answer;
}

/** There is something to get, and somebody who can. */
async function prove({ owner, superuser, ...scene }: Scene, proof: Proof): Promise<void> {
  const [client, sql] = 'victim' in proof ? [owner, proof.victim] : [superuser, proof.superuser];
  await client.query('BEGIN');
  try {
    const { rows } = await client.query({ text: sql({ owner, superuser, ...scene }), rowMode: 'array' });
    if (client === owner) expect(JSON.stringify(rows)).toMatch(TRACES);
  } finally {
    await client.query('ROLLBACK');
  }
}

/** The victim has what it had. */
async function isUnharmed({ owner, resident }: Scene): Promise<void> {
  for (const client of [owner, resident]) {
    const { rows } = await client.query('SELECT count(*)::int AS count, min(secret) AS secret FROM secrets');
    expect(rows).toEqual([{ count: 1, secret: expect.stringMatching(TRACES) }]);
  }
}
