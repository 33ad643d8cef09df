import { stat, unlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Bench } from './bench.ts';
import { run } from './child.ts';
import { address, environment, findProgram, type WireLogin } from './pgbench.ts';
import type { Scenario } from './scenario.ts';
import { interleave } from './series.ts';
import { load, warmUp } from './wire.ts';

const ROWS_SQL = 'SELECT * FROM pgbench_accounts WHERE aid <= 1000;\n';
const ROWS_CLIENTS = 8;
/** 200 MB out of accounts of about 96 bytes. */
const COPY_SQL = 'COPY (SELECT a.* FROM generate_series(1, 5), pgbench_accounts a WHERE aid <= 420000) TO STDOUT';

export const ROWS: Scenario = {
  name: 'rows',
  about: `pgbench: a result of 1,000 rows of about 100 bytes, ${ROWS_CLIENTS} clients, simple protocol`,
  async run(bench, wire) {
    const script = join(bench.folder, 'rows.sql');
    await writeFile(script, ROWS_SQL);
    const args = ['-f', script];
    const peers = await wire.take('Postgres', 'PgBouncer', 'PgBouncer 64k', 'Postern');
    await warmUp(peers, args, bench);
    const labels = { scenario: 'rows', case: `${ROWS_CLIENTS} clients`, ...bench.options, signal: bench.signal };
    return interleave(labels, peers, (peer) => load(peer, args, ROWS_CLIENTS, bench));
  },
};

export const COPY: Scenario = {
  name: 'copy',
  about: 'psql: COPY of 200 MB to the client, lines of about 96 bytes',
  async run(bench, wire) {
    const peers = await wire.take('Postgres', 'PgBouncer', 'PgBouncer 64k', 'Postern');
    const [first] = peers;
    if (first === undefined) return [];
    const bytes = await size(first.login, bench);
    const labels = { scenario: 'copy', case: '1 client', ...bench.options, signal: bench.signal };
    return interleave(labels, peers, async ({ login }) => ({ 'MB/s': bytes / 1e6 / (await copySeconds(login, '/dev/null', bench)) }));
  },
};

async function size(login: WireLogin, bench: Bench): Promise<number> {
  const file = join(bench.folder, 'copy');
  await copySeconds(login, file, bench);
  const { size } = await stat(file);
  await unlink(file);
  return size;
}

/** Without connecting and logging in. */
async function copySeconds(login: WireLogin, file: string, { signal }: Bench): Promise<number> {
  const args = ['-X', '-q', '-o', file, '-c', '\\timing on', '-c', COPY_SQL, ...address(login)];
  const said = await run(findProgram('psql'), args, { env: environment(login), signal });
  const milliseconds = Number(/^Time: ([\d.]+) ms/m.exec(said)?.[1]);
  if (!(milliseconds > 0)) throw new Error(`psql did not say how long it took: ${said}`);
  return milliseconds / 1000;
}
