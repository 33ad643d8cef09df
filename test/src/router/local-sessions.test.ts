import { expect, it } from 'vitest';
import { type ListedSession, LocalSessions } from '../../../src/router/sessions.ts';

/** A door with so many sessions, every other one of the key k0. */
function doorWith(count: number, text = 'SELECT 1'): LocalSessions {
  const sessions = Array.from({ length: count }, (_, number): ListedSession => {
    const since = performance.now() - 1_000;
    const common = {
      door: 'http',
      keyPrefix: 'pst_',
      sourceIp: '::1',
      applicationName: '',
      userAgent: 'x'.repeat(600),
      processId: undefined,
    } as const;
    const times = { connectedAt: since, state: 'active', stateSince: since, pins: [], isEncrypted: true } as const;
    return {
      number,
      keyId: `k${number % 2}`,
      describe: () => ({ ...common, ...times, statement: { text, isWhole: true, since } }),
      cancel() {},
      terminate() {},
    };
  });
  const local = new LocalSessions((number) => `ses_${number}`);
  local.register({ sessionsOf: (id) => (id === 'org' ? sessions : []), all: () => sessions.map((session) => ['org', session] as const) });
  return local;
}

it('lists at most a thousand sessions', async () => {
  const { sessions, isComplete } = await doorWith(1_001).list({ organizationId: 'org' });
  expect([sessions.length, isComplete]).toEqual([1_000, false]);
  const own = await doorWith(2_000).list({ organizationId: 'org', keyId: 'k1' });
  expect([own.sessions.length, own.isComplete]).toEqual([1_000, true]);
  const [first] = own.sessions;
  expect(first).toMatchObject({ sessionId: 'ses_1', keyId: 'k1', applicationName: null, statement: { sql: 'SELECT 1' } });
  expect(first?.statement?.runningMs).toBeGreaterThanOrEqual(1_000);
  expect(first?.userAgent).toHaveLength(500);
  expect(await doorWith(1).list({ organizationId: 'other' })).toEqual({ sessions: [], isComplete: true });
});

it('shows the beginning of statements, and not of very many', async () => {
  const { sessions } = await doorWith(1_000, 'x'.repeat(100_000)).list({ organizationId: 'org' });
  expect(sessions.filter(({ statement }) => statement?.sql === 'x'.repeat(1_000))).toHaveLength(32);
  expect(sessions.filter(({ statement }) => statement === null)).toHaveLength(968);
});

it('masks all literals of a text that is not read to its end', async () => {
  const shown = async (text: string) => (await doorWith(1, text).list({ organizationId: 'org' })).sessions[0]?.statement?.sql;
  const rest = ' '.repeat(10_000);
  expect(await shown(`SELECT 'a', pst_0123456789abc${rest}`)).toBe(`SELECT '***', pst_***${' '.repeat(979)}`);
  expect(await shown("  SELECT 'a'")).toBe("SELECT 'a'");
  expect(await shown("ALTER ROLE x PASSWORD 'a'")).toBe("ALTER ROLE x PASSWORD '***'");
  expect(await shown(`SELECT ${'a'.repeat(992)}\u{1f600}`)).toBe(`SELECT ${'a'.repeat(992)}`);
});

it('signals sessions of the organization or key only', () => {
  const local = doorWith(4);
  expect(local.signal({ organizationId: 'org', keyId: 'k1' }, 3, 'cancel')).toBe(true);
  expect(local.signal({ organizationId: 'org', keyId: 'k0' }, 3, 'terminate')).toBe(false);
  expect(local.signal({ organizationId: 'other' }, 3, 'terminate')).toBe(false);
  expect(local.signal({ organizationId: 'org' }, 4, 'terminate')).toBe(false);
});
