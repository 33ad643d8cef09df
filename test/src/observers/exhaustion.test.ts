import { describe, expect, it, vi } from 'vitest';
import { fanOut, type Observation } from '../../../src/observation.ts';
import { exhaustionObserver } from '../../../src/observers/log.ts';

const origin = { surface: 'http', sourceIp: '203.0.113.7' } as const;
const failed = (sqlstate: string): Observation => ({ name: 'wire.query.failed', organizationId: 'org_a', sqlstate, durationMs: 1 });
const call = (sqlstate: string, organizationId?: string): Observation => ({
  name: 'http.request',
  action: 'query',
  origin,
  actor: organizationId === undefined ? undefined : { organizationId },
  statement: { sql: "insert into t values ('value')" },
  outcome: { status: 'error', sqlstate },
});

function told(): { observe: (observation: Observation) => void; messages: string[] } {
  const messages: string[] = [];
  const observe = fanOut(
    exhaustionObserver(
      (warning) => messages.push(`${warning.name}: ${'message' in warning && warning.message}`),
      (organizationId) => organizationId === 'org_large',
    ),
  );
  return { observe, messages };
}

describe('requests that fail because the server has nothing left', () => {
  it('are warned of, from both doors and without an organization', () => {
    const { observe, messages } = told();
    observe(failed('53100'));
    expect(messages).toEqual(['service.warning: a request of org_a failed with 53100 (disk_full): see the log of the PostgreSQL server']);
    const [http, signUp] = [told(), told()];
    http.observe(call('53200', 'org_b'));
    signUp.observe(call('53100'));
    expect([http.messages, signUp.messages].flat()).toEqual([
      'service.warning: a request of org_b failed with 53200 (out_of_memory): see the log of the PostgreSQL server',
      'service.warning: a request failed with 53100 (disk_full): see the log of the PostgreSQL server',
    ]);
  });

  it('are warned of at most once a minute for each SQLSTATE', () => {
    vi.useFakeTimers({ toFake: ['performance'] });
    try {
      const { observe, messages } = told();
      for (let times = 0; times < 3; times += 1) observe(failed('53100'));
      observe(call('53200', 'org_b'));
      vi.advanceTimersByTime(59_999);
      observe(call('53100', 'org_b'));
      expect(messages).toHaveLength(2);
      vi.advanceTimersByTime(1);
      observe(call('53100', 'org_b'));
      expect(messages).toHaveLength(3);
    } finally {
      vi.useRealTimers();
    }
  });

  it('are not those that a limit of Postern or another condition has refused', () => {
    const { observe, messages } = told();
    for (const sqlstate of ['53300', '53400', '42P01']) observe(failed(sqlstate));
    observe(call('53100', 'org_large'));
    observe({ name: 'http.request', action: 'query', origin, outcome: { status: 'ok' } });
    expect(messages).toEqual([]);
  });
});
