import type pg from 'pg';
import { changePrivileges, type Names } from '../hardening.ts';

/** A role without LOGIN that may read all statistics. It owns only the functions that show an organization its part of them. */
const READER = 'postern_statistics';

/** Views of the server, with the condition for an organization's own rows. */
const VIEWS = {
  pg_stat_activity: 'shown.usename = session_user',
  pg_stat_database: 'shown.datname = pg_catalog.current_database()',
};

/** What {@link replaceStatisticsViews} makes. */
export const STATISTICS_VIEWS: Names = {
  relations: Object.keys(VIEWS),
  functions: Object.keys(VIEWS).map((view) => `postern_own_${view}`),
};

/** The functions that these views call. */
const READ: Names = { relations: [], functions: ['pg_stat_get_activity', 'pg_stat_get_db_[a-z_]+'] };

/** @param session of a superuser, in any database */
export async function ensureStatisticsReader(session: pg.Client): Promise<void> {
  const { rows } = await session.query('SELECT FROM pg_catalog.pg_roles WHERE rolname = $1', [READER]);
  if (rows.length > 0) return;
  await session.query(`CREATE ROLE ${READER} NOLOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE; GRANT pg_read_all_stats TO ${READER}`);
}

/**
 * Replaces the server's views by views that show an organization only its own sessions and its own database. A function with the
 * reader's privileges reads all rows and returns only these. Its body is parsed when it is created, so its names are
 * fixed and no condition of the caller is evaluated in it.
 *
 * There is no such view for pg_locks: reading it stops the lock manager until all locks are copied, which would show how
 * many locks others hold and let any organization delay all others.
 */
export async function replaceStatisticsViews(session: pg.Client): Promise<void> {
  await changePrivileges(session, `GRANT EXECUTE ON %s TO ${READER}`, READ);
  for (const [view, own] of Object.entries(VIEWS)) {
    const { rows } = await session.query('SELECT WHERE pg_catalog.to_regclass($1) IS NULL', [`pg_catalog.postern_${view}`]);
    if (rows.length > 0) await session.query(`ALTER VIEW pg_catalog.${view} RENAME TO postern_${view}`);
    await session.query(`REVOKE ALL ON pg_catalog.postern_${view} FROM PUBLIC; GRANT SELECT ON pg_catalog.postern_${view} TO ${READER};
      CREATE OR REPLACE FUNCTION pg_catalog.postern_own_${view}() RETURNS SETOF pg_catalog.postern_${view}
        LANGUAGE sql STABLE SECURITY DEFINER BEGIN ATOMIC
        SELECT shown.* FROM pg_catalog.postern_${view} AS shown
        WHERE ${own} OR pg_catalog.pg_has_role(session_user, 'pg_read_all_stats', 'USAGE');
      END;
      ALTER FUNCTION pg_catalog.postern_own_${view}() OWNER TO ${READER};
      GRANT EXECUTE ON FUNCTION pg_catalog.postern_own_${view}() TO PUBLIC;
      CREATE OR REPLACE VIEW pg_catalog.${view} AS SELECT * FROM pg_catalog.postern_own_${view}();
      GRANT SELECT ON pg_catalog.${view} TO PUBLIC`);
  }
}
