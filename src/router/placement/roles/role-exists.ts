import type pg from 'pg';

export async function roleExists(session: pg.PoolClient, role: string): Promise<boolean> {
  const { rows } = await session.query('SELECT FROM pg_catalog.pg_roles WHERE rolname = $1', [role]);
  return rows.length > 0;
}
