import { once } from 'node:events';
import { type AddressInfo, createServer, type Server } from 'node:net';
import { pipeline } from 'node:stream';
import pg from 'pg';
import { afterAll, beforeAll, beforeEach, describe, expect, inject, it } from 'vitest';
import { createWebSocketStream, WebSocket } from 'ws';
import { PLACEMENTS, startTestService, type TestOrganization, type TestService } from '../support/service.ts';

/** A client decodes rows by the columns that it was told once: it must be told when they are others. */
describe.each(PLACEMENTS)('placement %s', (POSTERN_PLACEMENT) => {
  let service: TestService;
  let operator: pg.Client;
  let organization: TestOrganization;
  beforeAll(async () => {
    service = await startTestService({ POSTERN_BACKENDS_PER_TENANT: '3', POSTERN_PLACEMENT });
    operator = new pg.Client({ connectionString: inject('clusterUrl') });
    await operator.connect();
  });
  afterAll(async () => {
    await operator.end();
    await service.close();
  });
  beforeEach(async () => {
    organization = await service.signUp();
    await change('CREATE TABLE bills AS SELECT 1 AS id, 100 AS paid, 900 AS due');
  });

  /** At the other door, which tells the wire door nothing. */
  async function change(sql: string): Promise<void> {
    const reply = await service.query(organization, sql);
    expect(reply.body).not.toHaveProperty('error');
  }

  const addAgain = async () => {
    await change('ALTER TABLE bills DROP paid');
    await change('ALTER TABLE bills ADD paid int DEFAULT 100');
  };

  /** As when they have been idle for long. */
  async function closeBackends(): Promise<void> {
    await operator.query('SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE usename = $1', [organization.id]);
  }

  /** A port whose connections are carried to the wire door over WebSockets. */
  async function tunnel(): Promise<Server> {
    const server = createServer((socket) => {
      const webSocket = createWebSocketStream(new WebSocket(`${service.httpUrl.replace('http:', 'ws:')}/v2`));
      pipeline(socket, webSocket, socket, () => {});
    });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    return server;
  }

  it.each(['socket', 'WebSocket'] as const)('postgres.js reads each column as what it is, over a %s', async (over) => {
    const server = await tunnel();
    const port = over === 'socket' ? service.wirePort : (server.address() as AddressInfo).port;
    const sql = service.sql(organization, { max: 1, idle_timeout: 0, port });
    const bills = () => sql`select * from bills`;
    expect(await bills()).toEqual([{ id: 1, paid: 100, due: 900 }]);
    await closeBackends();
    await addAgain();
    for (let round = 0; round < 3; round += 1) expect(await bills()).toEqual([{ id: 1, paid: 100, due: 900 }]);
    await closeBackends();
    await change("ALTER TABLE bills ALTER due TYPE text USING 'nine hundred'");
    expect(await bills()).toEqual([{ id: 1, paid: 100, due: 'nine hundred' }]);
    await sql.end();
    server.close();
  });

  it('a statement is refused on every backend until it is prepared anew', async () => {
    const clients = await Promise.all([1, 2, 3].map(() => service.connect(organization)));
    const ask = (client: pg.Client, name: string) => client.query({ name, text: 'SELECT * FROM bills' });
    for (const client of clients) await ask(client, 'old');
    await closeBackends();
    await addAgain();
    // Each on a backend of its own, all new.
    await Promise.all(clients.map((client) => client.query('BEGIN')));
    for (const client of clients) {
      await expect(ask(client, 'old')).rejects.toMatchObject({
        code: '0A000',
        message: 'cached plan must not change result type',
        routine: 'RevalidateCachedQuery',
      });
      await expect(client.query('SELECT 1')).rejects.toMatchObject({ code: '25P02' });
      await client.query('ROLLBACK');
      expect((await ask(client, 'new')).rows).toEqual([{ id: 1, due: 900, paid: 100 }]);
      await expect(ask(client, 'old')).rejects.toMatchObject({ code: '0A000' });
      await client.end();
    }
  });

  it('nothing of what is refused is carried out', async () => {
    const client = await service.connect(organization);
    const insert = () => client.query({ name: 'add', text: 'INSERT INTO bills SELECT 2, 0, 0 RETURNING *' });
    await insert();
    await closeBackends();
    await change('ALTER TABLE bills ALTER paid TYPE int8');
    await expect(insert()).rejects.toMatchObject({ code: '0A000' });
    expect((await client.query('SELECT count(*)::int AS n FROM bills')).rows).toEqual([{ n: 2 }]);
    await client.end();
  });

  it('a client that prepares after the change is not refused for what others were told before', async () => {
    const [old, next] = [await service.connect(organization), await service.connect(organization)];
    const ask = (client: pg.Client) => client.query({ name: 'all', text: 'SELECT * FROM bills' });
    await ask(old);
    await closeBackends();
    await addAgain();
    expect((await ask(next)).rows).toEqual([{ id: 1, due: 900, paid: 100 }]);
    await expect(ask(old)).rejects.toMatchObject({ code: '0A000' });
    expect((await ask(next)).rows).toEqual([{ id: 1, due: 900, paid: 100 }]);
    await old.end();
    await next.end();
  });

  it('one that repeats a text without a name is told the columns anew each time, and never refused', async () => {
    const client = await service.connect(organization);
    const ask = () => client.query({ text: 'SELECT * FROM bills', values: [], queryMode: 'extended' } as pg.QueryConfig);
    for (let round = 0; round < 6; round += 1) expect((await ask()).rows).toEqual([{ id: 1, paid: 100, due: 900 }]);
    await closeBackends();
    await addAgain();
    for (let round = 0; round < 6; round += 1) expect((await ask()).rows).toEqual([{ id: 1, due: 900, paid: 100 }]);
    await client.end();
  });

  it('what has nothing to do with a statement makes no difference to it', async () => {
    const client = await service.connect(organization);
    const ask = () => client.query({ name: 'all', text: 'SELECT * FROM bills' });
    await ask();
    await closeBackends();
    await change('CREATE TABLE unrelated (a int)');
    for (let round = 0; round < 5; round += 1) expect((await ask()).rows).toEqual([{ id: 1, paid: 100, due: 900 }]);
    await client.end();
  });

  it('what lists the prepared statements names none of ours', async () => {
    const client = await service.connect(organization);
    for (let round = 0; round < 8; round += 1) await client.query({ text: 'SELECT $1::int AS n', values: [round] });
    const list = () => client.query({ name: 'list', text: 'SELECT name FROM pg_prepared_statements' });
    for (let round = 0; round < 3; round += 1) expect((await list()).rows).toEqual([{ name: 'list' }]);
    await client.end();
  });
});
