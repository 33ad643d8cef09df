import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';
import { expect, it, onTestFinished } from 'vitest';
import { startTestService, testVariables } from '../support/service.ts';

/** A load balancer as simple as can be: the first of several places that takes the connection. */
async function startBalancer(ports: readonly number[]): Promise<Server> {
  const reach = async ([port, ...others]: readonly number[]): Promise<Socket> => {
    if (port === undefined) throw new Error('nobody takes the connection');
    const socket = connect(port, '127.0.0.1');
    return once(socket, 'connect').then(
      () => socket,
      () => reach(others),
    );
  };
  const server = createServer(async (client) => {
    client.on('error', () => {});
    const upstream = await reach(ports);
    upstream.on('error', () => {});
    client.pipe(upstream).pipe(client);
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  return server;
}

it('while one of two processes stops, whoever comes is served by the other, and who was there may end what he began (D9)', async () => {
  const variables = { ...testVariables(), POSTERN_SHUTDOWN_TIMEOUT_MS: '60000' };
  const [first, second] = [await startTestService(variables), await startTestService(variables)];
  onTestFinished(() => second.close());
  const organization = await first.signUp();
  const balancer = await startBalancer([first.wirePort, second.wirePort]);
  onTestFinished(() => {
    balancer.close();
  });
  const { port } = balancer.address() as AddressInfo;
  const logins = () => first.observations.filter(({ name }) => name === 'login.succeeded').length;
  const served = async () => {
    const client = await second.connect(organization, { port });
    expect((await client.query('SELECT 1 AS one')).rows).toEqual([{ one: 1 }]);
    await client.end();
  };

  await served();
  expect(logins()).toBe(1);
  const early = await second.connect(organization, { port });
  await early.query('CREATE TABLE notes (body text); BEGIN; INSERT INTO notes VALUES ($$kept$$)');
  const stopped = first.close();
  for (let n = 0; n < 20; n += 1) await served();
  expect(logins()).toBe(2);
  const told = once(early, 'error');
  await early.query('COMMIT');
  expect((await told)[0]).toMatchObject({ severity: 'FATAL', code: '57P01' });
  await stopped;
  expect((await second.query(organization, 'SELECT body FROM notes')).body.rows).toEqual([{ body: 'kept' }]);
});
