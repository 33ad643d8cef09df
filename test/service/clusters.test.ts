import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { makeUrlFiles, runAdmin, type UrlFiles } from '../support/clusters.ts';
import { newControlDatabase } from '../support/control-databases.ts';
import { textOf } from '../support/documents.ts';
import { eventually } from '../support/eventually.ts';
import { makeOwnCluster, type OwnCluster } from '../support/own-cluster.ts';
import { PLACEMENTS, startTestService, type TestService } from '../support/service.ts';

describe.each(PLACEMENTS)('a service with two clusters, placement %s', (placement) => {
  let second: OwnCluster;
  let service: TestService;
  let files: UrlFiles;
  let urlFile: string;
  const settings = { POSTERN_CONTROL_DATABASE: newControlDatabase(), POSTERN_PLACEMENT: placement };

  beforeAll(async () => {
    [second, files] = await Promise.all([makeOwnCluster(), makeUrlFiles()]);
    urlFile = await files.keep('second', second.url);
    service = await startTestService(settings);
  });
  afterAll(async () => {
    await service.close();
    await second.remove();
    await files.remove();
  });

  const placementOf = async (id: string) => (await service.service.operator.organization(id)).placement.cluster;

  it('has the commands of the documents', async () => {
    const commands = textOf('Several PostgreSQL servers', 'text').trim().split('\n');
    const said = [];
    for (const command of commands) {
      const words = command.replace(/ +#.*/, '').replace('file:/run/secrets/eu2-url', urlFile).trim().split(/ +/);
      expect(words.splice(0, 3)).toEqual(['npx', 'postern', 'admin']);
      said.push(await runAdmin(settings, words));
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
      expect(await runAdmin(settings, ['cluster', 'add', 'second', urlFile])).toBe('second takes organizations');
      expect(await runAdmin(settings, ['cluster', 'list'])).toMatch(/^default +open +1 .*\n^second +open +0 /m);
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
