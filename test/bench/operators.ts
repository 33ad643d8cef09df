import pg from 'pg';
import { doorsAt } from '../support/doors.ts';
import { eventually } from '../support/eventually.ts';
import type { Bench } from './bench.ts';
import { type Postern, startPostern } from './postern.ts';
import { POSTERN } from './reach.ts';
import type { Scenario } from './scenario.ts';
import { interleave, type Series } from './series.ts';

const WORKERS = 4;
const ORGANIZATIONS = 1_000;
const CLIENTS = 200;
const KEY = 'the key of the operators';
const CONTROL = 'postern_operators';
/** Long enough that a mean means something. */
const TIMES = 10;
const TABLES = [
  'STATS',
  'STATS_TOTALS',
  'STATS_AVERAGES',
  'TOTALS',
  'POOLS',
  'DATABASES',
  'CLIENTS',
  'SERVERS',
  'USERS',
  'LISTS',
  'CONFIG',
  'STATE',
];
const OURS = ['ORGANIZATIONS', 'PINS', 'LIMITS', 'CLUSTERS', 'LOCKS', 'BACKUPS'];

/** They have no databases: nobody asks for one of theirs. */
const INSERT = `
  INSERT INTO postern.organizations (id, name, email, email_key, status, provisioner, placement, created_at)
  SELECT id, 'Bench ' || n, n || '@bench.test', n || '@bench.test', 'active', 0,
    jsonb_build_object('kind', 'database', 'cluster', 'default', 'database', id, 'schema', 'public', 'role', id), now()
  FROM (SELECT n, 'org_' || lpad(n::text, 12, '0') AS id FROM generate_series(1, $1::int) n) AS made`;

/** How long the tables of the operators' console take, of many organizations and clients in several processes. */
export const OPERATORS: Scenario = {
  name: 'operators',
  about: `${WORKERS} workers, ${ORGANIZATIONS} organizations, ${CLIENTS} clients: each SHOW of the console for operators, the mean of ${TIMES}`,
  async run(bench) {
    const env = { POSTERN_WORKERS: String(WORKERS), POSTERN_OPERATOR_KEY: KEY, POSTERN_CONTROL_DATABASE: CONTROL };
    const postern = await startPostern({ ...bench, pool: bench.options.pool, env });
    bench.closing.defer(() => postern.child.end());
    await populate(bench, postern);
    const console = new pg.Client({ host: '127.0.0.1', port: postern.wirePort, user: 'operator', database: 'postern', password: KEY });
    await console.connect();
    const peers = [{ name: POSTERN }];
    const series: Series[] = [];
    try {
      await eventually('all workers answer', async () => (await console.query('SHOW CLIENTS')).rows.length === CLIENTS);
      for (const table of [...TABLES, ...OURS]) {
        const labels = { scenario: 'operators', case: `SHOW ${table}`, ...bench.options, signal: bench.signal };
        series.push(...(await interleave(labels, peers, async () => timed(console, table))));
      }
    } finally {
      await console.end();
    }
    return series;
  },
};

async function timed(console: pg.Client, table: string): Promise<Record<string, number>> {
  const startedAt = performance.now();
  let rows = 0;
  for (let n = 0; n < TIMES; n += 1) rows = (await console.query(`SHOW ${table}`)).rows.length;
  return { ms: (performance.now() - startedAt) / TIMES, rows };
}

async function populate(bench: Bench, postern: Postern): Promise<void> {
  const url = new URL(bench.cluster.adminUrl);
  url.pathname = `/${CONTROL}`;
  const control = new pg.Client(url.href);
  await control.connect();
  await control.query(INSERT, [ORGANIZATIONS]);
  await control.end();
  const doors = doorsAt(Number(new URL(postern.httpUrl).port), postern.wirePort);
  const organization = await doors.signUp();
  const clients: pg.Client[] = [];
  bench.closing.defer(async () => {
    await Promise.all(clients.map((client) => client.end()));
  });
  while (clients.length < CLIENTS) {
    const client = await doors.connect(organization);
    clients.push(client);
    await client.query('SELECT 1');
  }
}
