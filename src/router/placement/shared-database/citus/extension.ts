import type pg from 'pg';
import { ON_THIS_NODE } from './run-on-nodes.ts';

/** Whether Citus is installed in the session's database. */
export async function hasCitus(session: pg.ClientBase): Promise<boolean> {
  const { rows } = await session.query("SELECT FROM pg_catalog.pg_extension WHERE extname = 'citus'");
  return rows.length > 0;
}

/**
 * Installs Citus, or updates it. Its scripts need a schema `public`, and the extension goes on depending on it; it stays empty and closed.
 * @param session of a superuser, in the shared database
 */
export async function installCitus(session: pg.Client): Promise<void> {
  await session.query(ON_THIS_NODE);
  await session.query('CREATE SCHEMA IF NOT EXISTS public; REVOKE ALL ON SCHEMA public FROM PUBLIC');
  // The second one does nothing if the extension is new, or current.
  await session.query('CREATE EXTENSION IF NOT EXISTS citus');
  await session.query('ALTER EXTENSION citus UPDATE');
}
