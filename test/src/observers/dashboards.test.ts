import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect, it } from 'vitest';
import { createMetrics } from '../../../src/observers/metrics.ts';

const run = promisify(execFile);

const fileOf = (name: string) => fileURLToPath(new URL(`../../../docker/${name}`, import.meta.url));
/** Of Debian's package `prometheus`. */
const PROMTOOL = '/usr/bin/promtool';

/** The names of all series, of a service that can tell everything. */
async function seriesNames(): Promise<Set<string>> {
  const { registry, close } = createMetrics({
    clusters: () => [],
    disk: async () => ({ freeBytes: 1, sizeBytes: 2 }),
    limits: () => ({ clients: 1 }),
    oldestLeaseMs: () => 0,
    top: 1,
    organizations: () => [],
    quotas: () => ({ near: 0, over: 0 }),
  });
  close();
  const metrics = await registry.getMetricsAsJSON();
  return new Set(
    metrics.flatMap(({ name, type }) => (String(type) === 'histogram' ? ['_bucket', '_sum', '_count'].map((end) => name + end) : [name])),
  );
}

it.each(['alerts.yml', 'grafana.json'])('%s asks for metrics that there are', async (name) => {
  const asked = (await readFile(fileOf(name), 'utf8')).match(/\bpostern_[a-z_]+(?=[^"a-z_])/g) ?? [];
  expect(asked.length).toBeGreaterThan(10);
  const known = await seriesNames();
  expect([...new Set(asked)].filter((one) => !known.has(one))).toEqual([]);
});

it('tells of the busiest organizations, and of the others together', async () => {
  const rates = (organizationId: string, requests: number) => ({
    organizationId,
    requests,
    bytes: 10 * requests,
    leasedSeconds: requests / 10,
  });
  const organizations = () => [rates('a', 1), rates('b', 5), rates('c', 3), rates('d', 2)];
  const { registry, close } = createMetrics({ clusters: () => [], top: 2, organizations });
  close();
  const text = await registry.metrics();
  const lines = text.split('\n').filter((line) => line.startsWith('postern_organization_requests_per_second{'));
  expect(lines).toEqual(['b"} 5', 'c"} 3', 'other"} 3'].map((end) => `postern_organization_requests_per_second{organization="${end}`));
  expect(text).toContain('postern_organization_bytes_per_second{organization="other"} 30\n');
});

it.skipIf(!existsSync(PROMTOOL))('promtool accepts the rules, and they fire', async () => {
  const rules = fileOf('alerts.yml');
  expect((await run(PROMTOOL, ['check', 'rules', rules])).stdout).toContain('16 rules found');
  const series = (name: string, values: string) => ({ series: name, values });
  const fires = (alertname: string, eval_time: string, labels: Record<string, string>, summary: string) => {
    return { alertname, eval_time, exp_alerts: [{ exp_labels: labels, exp_annotations: { summary } }] };
  };
  const test = {
    rule_files: [rules],
    evaluation_interval: '1m',
    tests: [
      {
        interval: '1m',
        input_series: [
          series('postern_cluster_up{instance="a",cluster="eu2"}', '1 0x20'),
          series('postern_lease_waiters{instance="a"}', '0 2x20'),
          series('postern_wire_sessions{instance="a",worker="1"}', '60x20'),
          series('postern_wire_sessions{instance="a",worker="2"}', '35x20'),
          series('postern_limit{instance="a",worker="1",of="clients"}', '100x20'),
          series('postern_limit{instance="a",worker="2",of="clients"}', '100x20'),
          series('postern_failures_total{instance="a"}', '0 0 0 1x17'),
        ],
        alert_rule_test: [
          { alertname: 'PosternClusterDown', eval_time: '1m', exp_alerts: [] },
          fires('PosternClusterDown', '3m', { severity: 'page', instance: 'a', cluster: 'eu2' }, 'a gets no answer from the cluster eu2'),
          { alertname: 'PosternLeaseWaiters', eval_time: '5m', exp_alerts: [] },
          fires(
            'PosternLeaseWaiters',
            '7m',
            { severity: 'warn', instance: 'a' },
            'Clients of a have been waiting for backends for 5 minutes',
          ),
          fires('PosternClientsNearLimit', '6m', { severity: 'warn', instance: 'a' }, 'a has over 90 % of POSTERN_CLIENTS_MAX'),
          { alertname: 'PosternFailures', eval_time: '2m', exp_alerts: [] },
          fires('PosternFailures', '4m', { severity: 'warn', instance: 'a' }, 'The log of a has an unexpected failure'),
        ],
      },
    ],
  };
  const folder = await mkdtemp(join(tmpdir(), 'postern-rules-'));
  try {
    // JSON is YAML.
    await writeFile(join(folder, 'tests.yml'), JSON.stringify(test));
    expect((await run(PROMTOOL, ['test', 'rules', join(folder, 'tests.yml')])).stdout).toContain('SUCCESS');
  } finally {
    await rm(folder, { recursive: true });
  }
});
