import type pg from 'pg';

/**
 * Revokes a function of the server from PUBLIC and renames it, so that one of Postern's can have its name. (CREATE OR REPLACE would have
 * no effect: the executor knows the server's own functions by their oids.) Repeating it does nothing.
 * @param session of a superuser that may change the catalogs
 */
export async function renameServerFunction(session: pg.Client, name: string, signature: string): Promise<void> {
  const { rows } = await session.query('SELECT WHERE pg_catalog.to_regprocedure($1) IS NULL', [`pg_catalog.postern_${name}(${signature})`]);
  if (rows.length === 0) return;
  await session.query(`REVOKE ALL ON FUNCTION pg_catalog.${name}(${signature}) FROM PUBLIC;
    ALTER FUNCTION pg_catalog.${name}(${signature}) RENAME TO postern_${name}`);
}
