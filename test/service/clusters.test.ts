import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest';
import { withSession } from '../../src/placement/admin-connection.ts';
import { makeUrlFiles, runAdmin, type UrlFiles } from '../support/clusters.ts';
import { newControlDatabase } from '../support/control-databases.ts';
import { textOf } from '../support/documents.ts';
import { eventually } from '../support/eventually.ts';
import { makeOwnCluster, type OwnCluster } from '../support/own-cluster.ts';
import { PLACEMENTS, startTestService, type TestService } from '../support/service.ts';

/** Of organizations that sign up at once. */
const NAMES = ['one', 'two', 'three', 'four', 'five', 'six'];

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
      expect(await runAdmin(settings, ['cluster', 'list', '--limit', '1'])).toMatch(/^default .*\n^more: --after default$/m);
      expect(await runAdmin(settings, ['cluster', 'list', '--after', 'default'])).toMatch(/^NAME .*\n^second +open +0 /m);
      await eventually('it is found', async () => (await metrics()).includes('postern_cluster_up{cluster="second"} 1\n'));
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

  it('adds no more than the cap, however many sign up at once, and none to one that drains', async () => {
    await runAdmin(settings, ['cluster', 'drain', 'default']);
    await runAdmin(settings, ['cluster', 'drain', 'second']);
    const third = await makeOwnCluster();
    try {
      await runAdmin(settings, ['cluster', 'add', 'third', await files.keep('third', third.url), '--cap', '2', '--placement', placement]);
      await eventually('it is found', async () => (await metrics()).includes('postern_cluster_up{cluster="third"} 1\n'));
      const signUp = (name: string) =>
        service.call('POST', '/api/auth/signup', { body: { orgName: name, email: `${name}-${placement}@acme.test` } });
      const replies = await Promise.all(NAMES.map(signUp));
      const made = replies.filter(({ status }) => status === 201);
      expect(await Promise.all(made.map(({ body }) => placementOf(body.id)))).toEqual(['third', 'third']);
      for (const { body } of replies.filter(({ status }) => status !== 201)) {
        expect(body).toMatchObject({ code: 'not_ready', retryable: true, detail: 'there is no room for another organization' });
      }
      expect(await runAdmin(settings, ['cluster', 'list'])).toMatch(/^default +draining .*\nsecond +draining .*\nthird +full +2 +2 +1 /m);
      await expect(runAdmin(settings, ['cluster', 'remove', 'third'])).rejects.toThrow('cluster "third" has 2 organizations');

      await runAdmin(settings, ['cluster', 'open', 'default']);
      // Who was refused may ask again.
      const refused = NAMES[replies.findIndex(({ status }) => status !== 201)] ?? '';
      let again = await signUp(refused);
      await eventually('there is room', async () => {
        if (again.status !== 201) again = await signUp(refused);
        return again.status === 201;
      });
      expect(await placementOf(again.body.id)).toBe('default');
      for (const { body } of made) await service.service.operator.drop(body.id, { surface: 'admin', sourceIp: '127.0.0.1' });
      expect(await runAdmin(settings, ['cluster', 'remove', 'third'])).toContain('third is removed');
      await eventually('it is closed', async () => !(await metrics()).includes('third'));
    } finally {
      await runAdmin(settings, ['cluster', 'open', 'default']);
      await runAdmin(settings, ['cluster', 'open', 'second']);
      await third.remove();
    }
  });

  it('logs in with a new password after a reload, and with the former one before', async () => {
    const third = await makeOwnCluster();
    const login = (password: string) => third.url.replace(/\/\/.*?@/, `//operated:${password}@`);
    const asSuperuser = (sql: string) => withSession(third.superuser, (session) => session.query(sql));
    try {
      await asSuperuser("CREATE ROLE operated LOGIN CREATEDB CREATEROLE PASSWORD 'first'");
      const source = await files.keep('operated', login('first'));
      await runAdmin(settings, ['cluster', 'add', 'operated', source]);
      await runAdmin(settings, ['cluster', 'drain', 'default']);
      await runAdmin(settings, ['cluster', 'drain', 'second']);
      await eventually('it is found', async () => (await metrics()).includes('postern_cluster_up{cluster="operated"} 1\n'));
      const organization = await service.signUp();
      expect(await placementOf(organization.id)).toBe('operated');
      const told = () => service.observations.flatMap((one) => (one.name === 'service.warning' ? [one.message] : []));

      await files.keep('operated', login('wrong'));
      service.service.reload();
      await eventually('it is told', () => told().some((message) => /^cluster operated has a URL that cannot be used/.test(message)));
      expect(told().join()).not.toContain('wrong@');
      expect((await service.query(organization, 'SELECT 1 AS one')).status).toBe(200);

      await asSuperuser("ALTER ROLE operated PASSWORD 'second'");
      await files.keep('operated', login('second'));
      service.service.reload();
      // The second one has read the file after the first; sessions that are lost are opened again, with the new password.
      service.service.reload();
      await asSuperuser("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'operated'");
      await eventually('it can make another organization there', async () => {
        const reply = await service.call('POST', '/api/auth/signup', { body: { orgName: 'New', email: `new-${placement}@acme.test` } });
        return reply.status === 201 || reply.body.code === 'email_taken';
      });
      await eventually('it answers', async () => (await metrics()).includes('postern_cluster_up{cluster="operated"} 1\n'));
    } finally {
      await runAdmin(settings, ['cluster', 'open', 'default']);
      await runAdmin(settings, ['cluster', 'open', 'second']);
      await third.remove();
    }
  });

  it('has no server twice, whatever its name or URL', async () => {
    const first = await files.keep('first', inject('clusterUrl'));
    await expect(runAdmin(settings, ['cluster', 'add', 'again', first])).rejects.toThrow(
      'this is the server that the service is started with',
    );
    await expect(runAdmin(settings, ['cluster', 'add', 'again', urlFile])).rejects.toThrow(
      'there is a cluster "again" already, or one for the same server',
    );
    await expect(runAdmin(settings, ['cluster', 'remove', 'default'])).rejects.toThrow('it stays');
  });

  it('is told why a server cannot be added, and not with its password', async () => {
    const nowhere = await files.keep('nowhere', 'postgres://somebody:hunter2@127.0.0.1:1/postgres');
    const refused = runAdmin(settings, ['cluster', 'add', 'nowhere', nowhere]);
    await expect(refused).rejects.toThrow(/^PostgreSQL at 127\.0\.0\.1:1 cannot be used: /);
    await expect(refused).rejects.not.toThrow('hunter2');
    await expect(runAdmin(settings, ['cluster', 'add', 'unset', 'env:SURELY_NOT_SET'])).rejects.toThrow(
      'env:SURELY_NOT_SET is not set in this process',
    );
  });

  const metrics = async () => (await fetch(`${service.opsUrl}/metrics`)).text();
});
