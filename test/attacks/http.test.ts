import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { PLACEMENTS } from '../support/service.ts';
import { REQUEST_ATTACKS } from './requests.ts';
import { makeScene, type Scene, TRACES } from './scene.ts';

/** The victim's own call, which leaves its traces in the audit log, in the ledger, and under an Idempotency-Key. */
const OF_THE_VICTIM = { 'x-request-id': 'of-the-victim', 'idempotency-key': 'of-the-victim' };

describe.each(PLACEMENTS)('with a %s for each organization', (kind) => {
  let scene: Scene;
  beforeAll(async () => {
    scene = await makeScene(kind);
    await scene.service.call('POST', '/api/migrations', {
      key: scene.victim.apiKey,
      body: { name: 'of-the-victim', sql: 'CREATE TABLE canary_migrated ()' },
    });
  });
  afterAll(() => scene.close());

  async function asVictim(method: string, path: string, body?: unknown): Promise<string> {
    const reply = await scene.service.call(method, path, {
      key: scene.victim.apiKey,
      headers: OF_THE_VICTIM,
      ...(body === undefined ? {} : { body }),
    });
    expect(reply.status).toBe(200);
    return JSON.stringify(reply.body);
  }

  describe('no request of the intruder is taken for another', () => {
    it.each(REQUEST_ATTACKS.map((attack) => [attack.way, attack] as const))('%s', async (_way, { request, answer }) => {
      expect(await asVictim('POST', '/api/query', { sql: 'SELECT secret FROM secrets' })).toMatch(TRACES);
      const { method = 'POST', path = '/api/query', headers = {}, body } = request(scene);
      const reply = await scene.service.call(method, path, { headers: { ...headers }, ...(body === undefined ? {} : { body }) });
      if (typeof answer === 'function') expect([reply.status, reply.body]).toEqual([200, expect.objectContaining(answer(scene))]);
      else expect([reply.status, reply.body.code]).toEqual(answer);
      expect(JSON.stringify(reply.body)).not.toMatch(TRACES);
      expect(JSON.stringify(reply.body)).not.toMatch(/canary/);
    });
  });

  it('what was sought is there: its owner finds it', async () => {
    await scene.service.service.router.catalog.audit.flush();
    expect(await asVictim('GET', '/api/audit?requestId=of-the-victim')).toContain('SELECT secret FROM secrets');
    expect(await asVictim('GET', '/api/migrations')).toContain('of-the-victim');
    const again = await scene.service.call('POST', '/api/query', {
      key: scene.victim.apiKey,
      headers: OF_THE_VICTIM,
      body: { sql: 'SELECT secret FROM secrets' },
    });
    expect(again.headers.get('idempotency-replayed')).toBe('true');
  });
});
