import type pg from 'pg';

/** A release of PostgreSQL, by its major and minor number. */
interface Release {
  readonly major: number;
  readonly minor: number;
  /** The day, in UTC. */
  readonly on: string;
}

/**
 * The newest release with security fixes of each major version that Postern runs on.
 * @see https://www.postgresql.org/support/security/ and https://www.postgresql.org/developer/roadmap/ for the days
 */
const RELEASES: readonly Release[] = [
  { major: 15, minor: 20, on: '2026-11-12' },
  { major: 16, minor: 16, on: '2026-11-12' },
  { major: 17, minor: 12, on: '2026-11-12' },
  { major: 18, minor: 7, on: '2026-11-12' },
];
/** Releases come every three months. */
const KNOWN_FOR_DAYS = 120;
const DAY_MS = 86_400_000;

/** An instant at which a zone's time differs since a release of the time zone database; each of these releases has it too. */
const ZONE_CHANGE = { zone: 'America/Winnipeg', at: '2026-11-15T12:00:00Z', local: '07:00', since: '2026e' };

/** The collation by which it is noticed that the server sorts by another version of a library than its data was made with. */
interface Collation {
  readonly name: string;
  readonly provider: 'c' | 'i';
  readonly made: string;
  readonly present: string;
}

/** What a session in a server's control database finds out about the server's age. */
export interface ServerAge {
  /** `server_version_num`, e.g. 180004. */
  readonly version: number;
  /** The local time of one instant in a zone that has changed lately. */
  readonly local: string;
  /** Those that have changed, one of each library. */
  readonly collations: readonly Collation[];
}

/** Needs no rights. @param session in a database with UTF8 as its encoding */
export async function readServerAge(session: pg.ClientBase): Promise<ServerAge> {
  const { rows } = await session.query<ServerAge>(
    `SELECT current_setting('server_version_num')::int AS version,
       to_char($1::timestamptz AT TIME ZONE $2, 'HH24:MI') AS local,
       (SELECT coalesce(json_agg(one), '[]') FROM (
          SELECT DISTINCT ON (collprovider) collname AS name, collprovider AS provider, collversion AS made,
            pg_collation_actual_version(oid) AS present
          FROM pg_collation WHERE collversion IS NOT NULL AND collprovider IN ('c', 'i')
          ORDER BY collprovider, collname = 'und-x-icu' DESC, collname
        ) AS one WHERE made <> present) AS collations`,
    [ZONE_CHANGE.at, ZONE_CHANGE.zone],
  );
  const [age] = rows;
  if (age === undefined) throw new Error('the server does not tell its version');
  return age;
}

/**
 * What an operator should do about a server's age.
 * @param name of its cluster
 * @returns a sentence for each; none: it is up to date
 */
export function concernsAbout({ version, local, collations }: ServerAge, name: string): string[] {
  const server = `the PostgreSQL server of the cluster ${name}`;
  const [major, minor] = [Math.floor(version / 10_000), version % 10_000];
  const newest = RELEASES.find((release) => release.major === major);
  const concerns: string[] = [];
  if (newest !== undefined && minor < newest.minor) {
    concerns.push(
      `${server} is ${major}.${minor}, and ${major}.${newest.minor} of ${newest.on} closes security holes that it has, some for every role: ` +
        'update it, or have the embedded server use a newer one (POSTERN_POSTGRES_BIN)',
    );
  }
  if (local !== ZONE_CHANGE.local) {
    const { at, zone, local: right, since } = ZONE_CHANGE;
    concerns.push(
      `${server} has time zones from before ${since}: ${at} is ${local} in ${zone} for it, and is ${right} there: update it, or the tzdata of its machine`,
    );
  }
  for (const { name: collation, provider, made, present } of collations) {
    concerns.push(
      `${server} sorts by version ${present} of ${provider === 'c' ? 'the C library' : 'ICU'}, and its data was made with ${made} (collation "${collation}"): ` +
        'indexes on columns with such collations may be out of order: REINDEX them',
    );
  }
  return concerns;
}

/** @returns a sentence if this Postern is too old to know which releases there are */
export function concernAboutReleases(now: Date): string | undefined {
  const newest =
    RELEASES.map(({ on }) => on)
      .toSorted()
      .at(-1) ?? '';
  if (now.getTime() - Date.parse(newest) <= KNOWN_FOR_DAYS * DAY_MS) return undefined;
  return (
    `this Postern knows releases of PostgreSQL up to ${newest}, more than ${KNOWN_FOR_DAYS} days ago, and cannot tell ` +
    'whether a server lacks later security fixes: update Postern'
  );
}
