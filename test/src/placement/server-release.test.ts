import pg from 'pg';
import { describe, expect, inject, test } from 'vitest';
import { concernAboutReleases, concernsAbout, readServerAge, type ServerAge } from '../../../src/placement/server-release.ts';
import { readDocument } from '../../support/documents.ts';

const CURRENT: ServerAge = { version: 180_007, local: '07:00', collations: [] };
const SERVER = 'the PostgreSQL server of the cluster eu2';

describe('what is said of a server', () => {
  test.each([150_020, 160_016, 170_012, 180_007, 180_012, 190_000])('nothing, if it is %i', (version) => {
    expect(concernsAbout({ ...CURRENT, version }, 'eu2')).toEqual([]);
  });

  test.each([
    [150_019, '15.19, and 15.20'],
    [160_000, '16.0, and 16.16'],
    [170_011, '17.11, and 17.12'],
    [180_004, '18.4, and 18.7'],
  ])('which fixes it lacks, if it is %i', (version, said) => {
    const rest =
      'of 2026-11-12 closes security holes that it has, some for every role: update it, or have the embedded server use a newer one (POSTERN_POSTGRES_BIN)';
    expect(concernsAbout({ ...CURRENT, version }, 'eu2')).toEqual([`${SERVER} is ${said} ${rest}`]);
  });

  test('that its time zones are old', () => {
    expect(concernsAbout({ ...CURRENT, local: '06:00' }, 'eu2')).toEqual([
      `${SERVER} has time zones from before 2026e: 2026-11-15T12:00:00Z is 06:00 in America/Winnipeg for it, and is 07:00 there: update it, or the tzdata of its machine`,
    ]);
  });

  test('that it sorts otherwise than when its data was made', () => {
    const collations = [
      { name: 'de_DE', provider: 'c', made: '2.36', present: '2.41' },
      { name: 'und-x-icu', provider: 'i', made: '153.80', present: '153.128' },
    ] as const;
    const rest = 'indexes on columns with such collations may be out of order: REINDEX them';
    expect(concernsAbout({ ...CURRENT, collations }, 'eu2')).toEqual([
      `${SERVER} sorts by version 2.41 of the C library, and its data was made with 2.36 (collation "de_DE"): ${rest}`,
      `${SERVER} sorts by version 153.128 of ICU, and its data was made with 153.80 (collation "und-x-icu"): ${rest}`,
    ]);
  });
});

test('the releases that are known are those that the documentation names', () => {
  const [, list = ''] = /as this Postern knows: (.+)\.$/m.exec(readDocument('docker/README.md')) ?? [];
  const versions = [...list.matchAll(/(\d+)\.(\d+)/g)].map(([, major, minor]) => 10_000 * Number(major) + Number(minor));
  expect(versions).toHaveLength(4);
  const lacking = (version: number) => concernsAbout({ ...CURRENT, version }, 'eu2').length;
  expect(versions.map((version) => [lacking(version), lacking(version - 1)])).toEqual(versions.map(() => [0, 1]));
});

test('the time that is right in the zone is that of Node, where it has the release of the time zone database or a later one', () => {
  const time = new Intl.DateTimeFormat('en-GB', { timeZone: 'America/Winnipeg', hour: '2-digit', minute: '2-digit' });
  expect(time.format(new Date('2026-11-15T12:00:00Z'))).toBe((process.versions.tz ?? '') >= '2026e' ? CURRENT.local : '06:00');
});

test('what is known of releases is trusted for 120 days', () => {
  expect(concernAboutReleases(new Date('2027-03-12T00:00:00Z'))).toBeUndefined();
  expect(concernAboutReleases(new Date('2027-03-12T00:00:01Z'))).toMatch(/^this Postern knows releases of PostgreSQL up to 2026-11-12, /);
});

test('a server tells its version, a local time, and a collation whose library has changed', async () => {
  const session = new pg.Client(inject('clusterUrl'));
  await session.connect();
  try {
    const { rows } = await session.query("SELECT current_setting('server_version_num')::int AS version");
    const age = await readServerAge(session);
    expect(age).toEqual({ ...rows[0], local: expect.stringMatching(/^0[67]:00$/), collations: [] });
    await session.query("BEGIN; UPDATE pg_collation SET collversion = '1' WHERE collname = 'und-x-icu'");
    const [changed, ...others] = (await readServerAge(session)).collations;
    expect([changed, others]).toEqual([{ name: 'und-x-icu', provider: 'i', made: '1', present: expect.stringMatching(/^\d/) }, []]);
  } finally {
    await session.end();
  }
});
