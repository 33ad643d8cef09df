import { readdir, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import pg from 'pg';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { openOperator } from '../../src/admin/operations.ts';
import { readConfig } from '../../src/config.ts';
import { findRunningServer } from '../../src/embedded/embedded.ts';
import { type Service, startService } from '../../src/service.ts';
import { fill, mountDisk } from '../support/disk.ts';
import { type Doors, doorsAt } from '../support/doors.ts';
import { eventually } from '../support/eventually.ts';
import { makeScratch, type Scratch } from '../support/scratch.ts';

const MiB = 1024 * 1024;

const scratch: Scratch = await makeScratch();
/** Undefined where this user may not mount one: test/src/embedded/disk-space.test.ts has what is left. */
const disk = await mountDisk(join(scratch.path, 'disk'), 512);

let service: Service | undefined;
const warnings: string[] = [];
const config = readConfig({
  POSTERN_DATA_DIR: join(scratch.path, 'disk', 'data'),
  POSTERN_HTTP_PORT: '0',
  POSTERN_PG_PORT: '0',
  POSTERN_OPS_PORT: '0',
  POSTERN_SIGNUP: 'open',
  POSTERN_PLACEMENT: 'database',
});
beforeAll(async () => {
  if (disk === undefined) return;
  service = await startService(config, (seen) => {
    if (seen.name === 'service.warning') warnings.push(seen.message);
  });
});
afterAll(async () => {
  await service?.close();
  await disk?.unmount();
  await scratch.remove();
});

const MEGABYTE_OF_WAL = "SELECT pg_logical_emit_message(true, 'test', repeat('x', 1000000), true)";

/** As the superuser. @returns whether the server has done it */
async function runs(sql: string): Promise<boolean> {
  // None while it is being restarted.
  const server = await findRunningServer(config.POSTERN_DATA_DIR).catch(() => undefined);
  if (server === undefined) return false;
  const { host, port, superuser } = server;
  const session = new pg.Client({ host, port, ...superuser, database: 'postgres' });
  session.on('error', () => {});
  try {
    await session.connect();
    await session.query(sql);
    return true;
  } catch {
    return false;
  } finally {
    await session.end().catch(() => {});
  }
}

if (disk !== undefined) {
  const { folder } = disk;

  it('a disk that fills up is told of, refuses copies, and leaves PostgreSQL room for its WAL', { timeout: 120_000 }, async () => {
    if (service === undefined) throw new Error('there is no service');
    const doors: Doors = doorsAt(service.httpPort, service.wirePort);
    const opsUrl = `http://127.0.0.1:${service.opsPort}`;
    const gauge = async (name: string) => {
      const text = await (await fetch(`${opsUrl}/metrics`)).text();
      return Number(new RegExp(`^postern_data_directory_${name}_bytes (\\d+)$`, 'm').exec(text)?.[1]);
    };
    const reserve = () => stat(join(folder, 'data', 'disk-reserve')).catch(() => undefined);
    const organization = await doors.signUp();
    const clone = () => doors.call('POST', '/api/clones', { key: organization.apiKey });
    expect((await clone()).status).toBe(201);
    await eventually('there is a reserve', async () => (await reserve())?.size === Math.floor(51.2 * MiB));
    expect(await gauge('size')).toBe(512 * MiB);

    // After a crash the server makes anew what has been dropped since the last checkpoint: here it is about the WAL alone.
    await eventually('there is a checkpoint', () => runs('CHECKPOINT'));
    await fill(folder, 23 * MiB);
    expect(await gauge('free')).toBeLessThanOrEqual(23 * MiB);
    expect(await clone()).toMatchObject({ status: 507, body: { code: 'insufficient_storage', sqlstate: '53100', retryable: false } });
    const operator = await openOperator(config);
    const options = { force: false, pauseMs: 1_000, replicate: false, kind: 'schema' } as const;
    await expect(operator.mover.move(organization.id, options, operator.origin)).rejects.toMatchObject({ kind: 'insufficient_storage' });
    await operator.close();
    await eventually('it is warned of', async () => warnings.some((message) => message.includes('are free; organizations are not cloned')));

    const segments = async () =>
      (await readdir(join(folder, 'data', 'postgres', 'pg_wal'))).filter((name) => /^[\dA-F]{24}$/.test(name)).length;
    const before = await segments();
    expect(await reserve()).toBeDefined();
    await fill(folder).catch(() => {});
    // A new segment needs space, and the server goes down without it.
    await eventually('there is more WAL', async () => (await runs(MEGABYTE_OF_WAL)) && (await segments()) > before, 60_000);
    expect(await reserve()).toBeUndefined();

    await rm(join(folder, 'filler'));
    await eventually('there is a reserve again', async () => (await reserve())?.size === Math.floor(51.2 * MiB));
    await eventually('copies are made again', async () => (await clone()).status === 201, 60_000);
  });
}
