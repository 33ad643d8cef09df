import type pg from 'pg';

/** The setting is there if the server preloads pg_stat_statements. */
const PRELOADED = "pg_catalog.current_setting('pg_stat_statements.max', true) IS NOT NULL";

const INSUFFICIENT_PRIVILEGE = '42501';

/**
 * Creates the extension pg_stat_statements, where the server preloads it, and lets a role read the statistics of all. It exists in the
 * control database only, where no organization can connect: in its view, each would see the others' queries.
 * @param session in the control database
 * @param role the one that reads it, which may be another than the session's
 */
export async function provideQueryStatistics(session: pg.Client, role: string): Promise<void> {
  const { rows } = await session.query<{ preloaded: boolean }>(`SELECT ${PRELOADED} AS preloaded`);
  if (!rows[0]?.preloaded) return;
  try {
    await session.query('CREATE EXTENSION IF NOT EXISTS pg_stat_statements SCHEMA public; ALTER EXTENSION pg_stat_statements UPDATE');
    await session.query(`GRANT pg_read_all_stats TO ${role}`);
    await session.query(`GRANT EXECUTE ON FUNCTION pg_catalog.pg_stat_file(text, boolean) TO ${role}`);
    await session.query(await grantReset(session, role));
  } catch (error) {
    // Not a superuser: the operator may do it, as docker/README.md says. Where nothing is missing, nothing has to be done.
    if (!(error instanceof Error && 'code' in error && error.code === INSUFFICIENT_PRIVILEGE)) throw error;
  }
}

/** Its parameters differ between versions. */
async function grantReset(session: pg.Client, role: string): Promise<string> {
  const { rows } = await session.query<{ signature: string }>(
    `SELECT oid::pg_catalog.regprocedure::text AS signature FROM pg_catalog.pg_proc
     WHERE proname = 'pg_stat_statements_reset' AND pronamespace = 'public'::pg_catalog.regnamespace`,
  );
  return rows.map(({ signature }) => `GRANT EXECUTE ON FUNCTION ${signature} TO ${role}`).join('; ');
}
