import { describe, expect, test } from 'vitest';
import { examineServers, findingsTable } from '../../../src/admin/doctor.ts';
import { concernAboutReleases, type ServerAge } from '../../../src/placement/server-release.ts';

const CURRENT: ServerAge = { version: 180_007, local: '07:00', collations: [] };

describe('the doctor', () => {
  const server = (name: string, age: Partial<ServerAge> = {}) => ({ name, readAge: async () => ({ ...CURRENT, ...age }) });
  const today = new Date('2026-11-27T00:00:00Z');

  test('finds nothing to do where nothing lacks', async () => {
    const findings = await examineServers([server('default')], today);
    expect(findings).toEqual([
      { needsAttention: false, text: 'the PostgreSQL server of the cluster default is 18.7: no fixes that it lacks are known' },
    ]);
    expect(findingsTable(findings)).toBe(`ok         ${findings[0]?.text}`);
  });

  test('looks at every server, and at itself', async () => {
    const down = { name: 'us1', readAge: () => Promise.reject(new Error('connect ECONNREFUSED')) };
    const later = new Date('2027-05-01T00:00:00Z');
    const lines = findingsTable(await examineServers([server('default'), server('eu2', { version: 180_004 }), down], later)).split('\n');
    expect(lines.map((line) => line.slice(0, 11))).toEqual(['ok         ', 'ATTENTION  ', 'ATTENTION  ', 'ATTENTION  ']);
    expect(lines.map((line) => line.slice(11)).slice(1)).toEqual([
      expect.stringMatching(/^the PostgreSQL server of the cluster eu2 is 18\.4, /),
      'the PostgreSQL server of the cluster us1 does not answer: connect ECONNREFUSED',
      concernAboutReleases(later),
    ]);
  });
});
