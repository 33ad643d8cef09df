import { execFile } from 'node:child_process';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { eventually } from '../support/eventually.ts';
import { makeInstallation } from '../support/process.ts';
import { POSTERN } from './reach.ts';
import type { Scenario } from './scenario.ts';
import { interleave, type Series } from './series.ts';

/** About a gigabyte, a few megabytes in each statement's WAL. */
const MEBIBYTES = 1_024;
const FILL = `INSERT INTO filling SELECT repeat(md5(n::text), 256) FROM generate_series(1, 16384) n`;

/** How long base backups of a gigabyte take, and what is done with them. The peer copies the server's files, which restores nothing. */
export const BACKUPS: Scenario = {
  name: 'backups',
  about: 'one organization with 1 GB, embedded server: a base backup, its trial, and a data directory made from it',
  async run(bench) {
    const installation = await makeInstallation();
    bench.closing.defer(() => installation.remove());
    const dir = join(bench.folder, 'backups');
    const copy = join(bench.folder, 'copy');
    const variables = { POSTERN_BACKUP_DIR: dir, POSTERN_BACKUP_VERIFY_HOURS: '0' };
    const admin = async (...words: string[]) => {
      const { code, stderr } = await installation.admin(['backup', ...words], variables);
      if (code !== 0) throw new Error(stderr);
    };
    const labels = (what: string) => ({ scenario: 'backups', case: what, ...bench.options, signal: bench.signal });
    const postern = { name: POSTERN, copy: () => admin('create') };
    const series: Series[] = [];

    const service = await installation.start(variables);
    await eventually('the first base backup', () => service.log().some(({ event }) => event === 'backup.done'));
    const client = await service.connect(await service.signUp());
    await client.query('CREATE TABLE filling (body text); ALTER TABLE filling ALTER body SET STORAGE EXTERNAL');
    for (let written = 0; written < MEBIBYTES; written += 128) await client.query(FILL);
    await client.query('CHECKPOINT').catch(() => {});
    await client.end();
    const peer = {
      name: 'cp',
      async copy() {
        await rm(copy, { recursive: true, force: true });
        await promisify(execFile)('cp', ['-a', join(installation.dataDir, 'postgres/'), copy]);
      },
    };
    series.push(...(await interleave(labels('backup create'), [postern, peer], (one) => timed(one.copy))));
    await service.end('SIGTERM');

    const alone = [{ name: POSTERN }];
    const to = join(bench.folder, 'restored');
    series.push(...(await interleave(labels('backup verify'), alone, () => timed(() => admin('verify')))));
    const restored = async () => {
      await rm(to, { recursive: true, force: true });
      return timed(() => admin('restore', '--to', to));
    };
    series.push(...(await interleave(labels('backup restore'), alone, restored)));
    return series;
  },
};

async function timed(work: () => Promise<void>): Promise<Record<string, number>> {
  const startedAt = performance.now();
  await work();
  return { s: (performance.now() - startedAt) / 1_000 };
}
