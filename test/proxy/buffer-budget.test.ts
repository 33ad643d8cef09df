import { afterEach, describe, expect, it } from 'vitest';
import type { WireClient } from '../conversations/wire-client.ts';
import { eventually } from '../support/eventually.ts';
import { openSession, queryMessage } from '../support/raw-session.ts';
import { startTestService, type TestOrganization, type TestService } from '../support/service.ts';

const MIB = 1_048_576;

let service: TestService;
let organization: TestOrganization;
afterEach(() => service.close());

async function start(POSTERN_PLACEMENT: string): Promise<void> {
  service = await startTestService({ POSTERN_PLACEMENT });
  organization = await service.signUp();
}

const openAll = (count: number) => Promise.all(Array.from({ length: count }, () => openSession(service, organization)));

async function nextOf(client: WireClient): Promise<string> {
  const message = await client.read();
  return typeof message === 'object' ? `${message.type} ${message.body.toString('latin1')}` : String(message);
}

/** @returns the types of the messages up to ReadyForQuery */
async function readToReady(client: WireClient): Promise<string> {
  let types = '';
  while (!types.endsWith('Z')) types += (await nextOf(client))[0];
  return types;
}

/** What `client` says next is answered well. */
async function asks(client: WireClient, sql: string): Promise<void> {
  await client.write(queryMessage(sql));
  expect(await readToReady(client)).toBe('TDCZ');
}

describe('what an organization sends without an end takes bounded memory', () => {
  it('where texts are rewritten, what there is no room for is refused; what has come is not lost', async () => {
    await start('schema');
    const setUp = await service.connect(organization);
    await setUp.query('CREATE TABLE public.t AS SELECT 1 AS a');
    const message = queryMessage(`SELECT a FROM public.t /*${' '.repeat(31.4 * MIB)}*/`);
    const cut = message.length - 100;
    const clients = await openAll(5);
    for (const client of clients) await client.write(message.subarray(0, cut));
    const [refused, said] = await Promise.race(clients.map(async (client) => [client, await nextOf(client)] as const));
    expect(said).toMatch(/^E SFATAL\0VFATAL\0C53300\0Mstatements that are being sent exceed the memory limit\0/);
    expect(await nextOf(refused)).toBe('EOF');
    await setUp.query('SELECT a FROM public.t');

    for (const client of clients.filter((one) => one !== refused)) {
      await client.write(message.subarray(cut));
      expect(await readToReady(client)).toBe('TDCZ');
    }
    const [late] = await openAll(1);
    if (late !== undefined) await asks(late, message.toString('latin1', 5, message.length - 1));
    await setUp.end();
  });

  it('what has gone with its client makes room', async () => {
    await start('schema');
    const message = queryMessage(`SELECT 1 /*${' '.repeat(31.4 * MIB)}*/`);
    const gone = () => service.observations.filter(({ name }) => name === 'wire.disconnected').length;
    for (let round = 0; round < 3; round += 1) {
      const before = gone();
      const clients = await openAll(4);
      for (const client of clients) await client.write(message.subarray(0, message.length - 100));
      const [other] = await openAll(1);
      if (other !== undefined) await asks(other, `SELECT 1 /*${' '.repeat(MIB / 2)}*/`);
      for (const client of clients) client.disconnect();
      await eventually('the door knows that they have gone', () => gone() === before + 4);
    }
    const [late] = await openAll(1);
    if (late !== undefined) await asks(late, message.toString('latin1', 5, message.length - 1));
  });

  it('elsewhere, statements that could have been kept go by like those that are too large', async () => {
    await start('database');
    const padding = ' '.repeat(1_000_000);
    const parse = Buffer.concat([Buffer.from([0x50, 0, 0, 0, 0]), Buffer.from(`held\0SELECT 1${padding}\0\0\0`)]);
    parse.writeInt32BE(parse.length - 1, 1);
    const holders = await openAll(140);
    for (const holder of holders) await holder.write(parse.subarray(0, parse.length - 10));
    const client = await service.connect(organization);
    for (const a of [1, 2]) {
      expect((await client.query({ name: `n${a}`, text: `SELECT $1::int4 AS a${padding}`, values: [a] })).rows).toEqual([{ a }]);
      expect((await client.query(`SELECT $1::int4 AS a${padding}`, [a])).rows).toEqual([{ a }]);
    }
    expect((await client.query({ name: 'n1', text: `SELECT $1::int4 AS a${padding}`, values: [3] })).rows).toEqual([{ a: 3 }]);
    await client.end();
    const sync = Buffer.from('S\0\0\0\x04', 'latin1');
    for (const holder of holders) await holder.write(Buffer.concat([parse.subarray(parse.length - 10), sync]));
    for (const holder of holders) expect(await readToReady(holder)).toBe('1Z');
  });
});
