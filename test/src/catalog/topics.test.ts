import { afterAll, beforeAll, beforeEach, expect, it } from 'vitest';
import type { ForwardedCancel } from '../../../src/catalog/processes.ts';
import { eventually } from '../../support/eventually.ts';
import { openCatalog, type TestCatalog, TestControlDatabase } from './control-database.ts';

let database: TestControlDatabase;
let teller: TestCatalog;
let hearer: TestCatalog;
let heard: ForwardedCancel[];

beforeAll(async () => {
  database = await TestControlDatabase.create();
  [teller, hearer] = [await openCatalog(database), await openCatalog(database)];
  await hearer.catalog.processes.serve(async () => 'here');
  hearer.catalog.cancels.serve((cancel) => heard.push(cancel));
});

beforeEach(() => {
  heard = [];
});

afterAll(async () => {
  await Promise.all([teller.catalog.close(), hearer.catalog.close()]);
  await database.drop();
});

const notify = (channel: string, payload: string) => database.query('select pg_notify($1, $2)', [channel, payload]);

it('passes on all that comes while other messages are sent, each once', async () => {
  const secret = Buffer.from('a secret');
  await Promise.all(Array.from({ length: 450 }, (_, processId) => teller.catalog.cancels.forward(processId, secret)));
  await eventually('all have arrived', () => heard.length >= 450);
  expect(heard.map(({ processId }) => processId).sort((one, other) => one - other)).toEqual(Array.from({ length: 450 }, (_, at) => at));
  expect(new Set(heard.map(({ secretDigest }) => secretDigest)).size).toBe(1);
});

it('drops the oldest of more than a thousand that wait', async () => {
  const secret = Buffer.from('a secret');
  await Promise.all(Array.from({ length: 3_000 }, (_, processId) => teller.catalog.cancels.forward(processId, secret)));
  await eventually('the last one has arrived', () => heard.some(({ processId }) => processId === 2_999));
  expect(heard.length).toBeLessThanOrEqual(1_200);
});

it('adds up what is gathered, for each kind and key, and tells the other processes only', async () => {
  const counts: Record<string, number> = {};
  const own: string[] = [];
  for (const kind of ['login', 'refusal'] as const) {
    hearer.catalog.failures.listen(kind, (key, count) => {
      counts[`${kind} ${key}`] = (counts[`${kind} ${key}`] ?? 0) + count;
    });
    teller.catalog.failures.listen(kind, (key) => own.push(key));
  }
  for (let at = 0; at < 300; at += 1) {
    teller.catalog.failures.happened('login', `key ${at % 150}`);
    teller.catalog.failures.happened('refusal', '203.0.113.7');
  }
  await eventually('all have been counted', () => Object.values(counts).reduce((sum, count) => sum + count, 0) >= 600);
  expect(counts['refusal 203.0.113.7']).toBe(300);
  expect(counts['login key 149']).toBe(2);
  expect(own).toEqual([]);
});

it('ignores what no version of this service tells', async () => {
  const clusters: string[] = [];
  hearer.catalog.slots.listen((cluster) => clusters.push(cluster));
  for (const payload of ['', 'null', '{', '[1]', '{"cluster":1}', '{"kind":"login","failures":1}', '{"id":"x"}', '[[1]]']) {
    for (const topic of ['cancels', 'slots', 'failures', 'processes', 'credentials']) await notify(`postern_${topic}`, payload);
  }
  await notify('postern_slots', '{"from":0,"cluster":"default"}');
  await eventually('the request has arrived', () => clusters.length > 0);
  expect(clusters).toEqual(['default']);
  expect(heard).toEqual([]);
});
