import type pg from 'pg';
import { changeRights, type Names } from '../hardening.ts';

/** May read all statistics, and owns nothing but the functions that show an organization its part of them. Nobody logs in as it. */
const READER = 'postern_statistics';

/** Views of the server's, and which of their rows are the organization's own. */
const VIEWS = {
  pg_stat_activity: 'shown.usename = session_user',
  pg_stat_database: 'shown.datname = pg_catalog.current_database()',
};

/** What is called under those views. */
const READ: Names = { relations: [], functions: ['pg_stat_get_activity', 'pg_stat_get_db_[a-z_]+'] };

/** @param session a superuser's, in any database */
export async function ensureStatisticsReader(session: pg.Client): Promise<void> {
  const { rows } = await session.query('SELECT FROM pg_catalog.pg_roles WHERE rolname = $1', [READER]);
  if (rows.length > 0) return;
  await session.query(`CREATE ROLE ${READER} NOLOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE; GRANT pg_read_all_stats TO ${READER}`);
}

/**
 * Puts views in the place of the server's that show the organization its own sessions and its own database, and nothing of
 * others. The rows of all come together in a function that runs with the reader's rights and gives out none but those: its
 * body is parsed when it is made, what it names is fixed, and no condition of the caller's gets into it.
 *
 * pg_locks has none: to read it stops the whole server's lock manager for as long as all locks are copied, which tells how
 * many there are and would let anybody hold up everybody.
 */
export async function showOwnActivity(session: pg.Client): Promise<void> {
  await changeRights(session, `GRANT EXECUTE ON %s TO ${READER}`, READ);
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
