import type pg from 'pg';

/**
 * Takes a function of the server's from everybody and renames it, so that one of ours can take its name. (To replace it would
 * do nothing: the executor knows the server's own functions by their oids.) Done again, it does nothing.
 * @param session a superuser's that may change the catalogs
 */
export async function stepAside(session: pg.Client, name: string, signature: string): Promise<void> {
  const { rows } = await session.query('SELECT WHERE pg_catalog.to_regprocedure($1) IS NULL', [`pg_catalog.postern_${name}(${signature})`]);
  if (rows.length === 0) return;
  await session.query(`REVOKE ALL ON FUNCTION pg_catalog.${name}(${signature}) FROM PUBLIC;
    ALTER FUNCTION pg_catalog.${name}(${signature}) RENAME TO postern_${name}`);
}
