import type pg from 'pg';
import type { Observe } from '../../observation.ts';

/** The setting is there if the server preloads pg_stat_statements. */
const PRELOADED = "pg_catalog.current_setting('pg_stat_statements.max', true) IS NOT NULL";

const INSUFFICIENT_PRIVILEGE = '42501';

const WARNING =
  'the PostgreSQL server preloads pg_stat_statements, in which a statement of any key can end the server process, and with it the ' +
  'sessions of all organizations: take it out of shared_preload_libraries (POSTERN_QUERY_STATISTICS=off for the embedded server)';

/**
 * Warns where the server preloads pg_stat_statements. There the extension is created for operators, in the control database only, where
 * no organization can connect: in its view, each would see the others' queries. A role gets what {@link TextFileWatch} needs.
 * @param session in the control database
 * @param role the one that watches, which may be another than the session's
 */
export async function provideQueryStatistics(session: pg.Client, role: string, observe: Observe): Promise<void> {
  const { rows } = await session.query<{ preloaded: boolean }>(`SELECT ${PRELOADED} AS preloaded`);
  if (!rows[0]?.preloaded) return;
  observe({ name: 'service.warning', message: WARNING });
  try {
    await session.query('CREATE EXTENSION IF NOT EXISTS pg_stat_statements SCHEMA public; ALTER EXTENSION pg_stat_statements UPDATE');
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
