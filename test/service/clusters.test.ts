import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { parseCommand } from '../../src/admin/command.ts';
import { openOperator } from '../../src/admin/open-operator.ts';
import { readConfig } from '../../src/config.ts';
import { newControlDatabase } from '../support/control-databases.ts';
import { textOf } from '../support/documents.ts';
import { eventually } from '../support/eventually.ts';
import { makeOwnCluster, type OwnCluster } from '../support/own-cluster.ts';
import { makeScratch } from '../support/scratch.ts';
import { PLACEMENTS, startTestService, type TestService, testVariables } from '../support/service.ts';

describe.each(PLACEMENTS)('a service with two clusters, placement %s', (placement) => {
  let second: OwnCluster;
  let service: TestService;
  let folder: Awaited<ReturnType<typeof makeScratch>>;
  let urlFile: string;
  const settings = { POSTERN_CONTROL_DATABASE: newControlDatabase(), POSTERN_PLACEMENT: placement };

  beforeAll(async () => {
    [second, folder] = await Promise.all([makeOwnCluster(), makeScratch()]);
    const path = join(folder.path, 'second');
    await writeFile(path, `${second.url}\n`, { mode: 0o600 });
    urlFile = `file:${path}`;
    service = await startTestService(settings);
  });
  afterAll(async () => {
    await service.close();
    await second.remove();
    await folder.remove();
  });

  const placementOf = async (id: string) => (await service.service.operator.organization(id)).placement.cluster;

  it('has the commands of the documents', async () => {
    const commands = textOf('Several PostgreSQL servers', 'text').trim().split('\n');
    const said = [];
    for (const command of commands) {
      const words = command.replace(/ +#.*/, '').replace('file:/run/secrets/eu2-url', urlFile).trim().split(/ +/);
      expect(words.splice(0, 3)).toEqual(['npx', 'postern', 'admin']);
      said.push(await admin(settings, words));
    }
    expect(said).toEqual([
      'eu2 takes organizations',
      expect.stringMatching(/^default .*\neu2 +open +0 +5000 +2 +database,schema +file:/m),
      'eu2 takes no more organizations',
      'eu2 is removed; nothing on its server has been changed',
    ]);
  });

  it('puts organizations on both', async () => {
    const first = await service.signUp();
    const other = await startTestService(settings);
    try {
      expect(await admin(settings, ['cluster', 'add', 'second', urlFile])).toBe('second takes organizations');
      expect(await admin(settings, ['cluster', 'list'])).toMatch(/^default +open +1 .*\n^second +open +0 /m);
      const organizations = [first];
      for (let n = 0; n < 3; n += 1) organizations.push(await service.signUp());
      const places = await Promise.all(organizations.map(({ id }) => placementOf(id)));
      expect(places.sort()).toEqual(['default', 'default', 'second', 'second']);
      // The other process has found the cluster too.
      for (const organization of organizations) {
        await eventually('the other process serves it', async () => (await other.query(organization, 'SELECT 1 AS one')).status === 200);
        const client = await service.connect(organization);
        await client.query('CREATE TABLE notes (body text)');
        await client.end();
      }
    } finally {
      await other.close();
    }
  });
});

async function admin(settings: Readonly<Record<string, string>>, words: readonly string[]): Promise<string> {
  const session = await openOperator(readConfig({ ...testVariables(), ...settings }));
  try {
    return await parseCommand(words)(session, async () => undefined);
  } finally {
    await session.close();
  }
}
