import { it } from 'vitest';
import { PLACEMENTS, startTestService } from '../support/service.ts';

it.each(PLACEMENTS)('%s', async (placement) => {
  const service = await startTestService({ POSTERN_PLACEMENT: placement });
  const intruder = await service.signUp('I');
  const q = async (sql: string) => { const { status, body } = await service.query(intruder, sql); console.log(status, body.message ?? 'ok'); };
  const mig = (name: string, sql: string) => service.call('POST', '/api/migrations', { key: intruder.apiKey, body: { name, sql } });
  console.log((await mig('a', 'SELECT 1')).status);
  const t = placement === 'database' ? 'postern.migrations' : `${intruder.id}.postern_migrations`;
  await q(`ALTER TABLE ${t} RENAME TO real`);
  await q(`CREATE VIEW ${t} AS SELECT n AS id, 'x' || n AS name, 'applied' AS status, 'c' AS checksum, 's' AS sql, null::text AS rollback_sql, 1 AS statement_count, 1 AS statements_applied, 1.0::float8 AS duration_ms, now() AS applied_at FROM generate_series(1, 1000000) n`);
  const before = process.memoryUsage().rss / 1e6;
  const t0 = performance.now();
  let peak = 0;
  const timer = setInterval(() => { peak = Math.max(peak, process.memoryUsage().rss / 1e6); }, 50);
  const r = await fetch(`${service.httpUrl}/api/migrations`, { headers: { authorization: `Bearer ${intruder.apiKey}` } });
  const len = (await r.text()).length;
  clearInterval(timer);
  console.log(placement, 'list', r.status, len, 'ms', performance.now() - t0, 'rss', before, 'peak', peak);
  await service.close();
}, 120_000);
