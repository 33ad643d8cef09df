import type pg from 'pg';

/** Changes in this session are not made on other nodes. Without Citus it is a setting that nothing reads. */
export const ON_THIS_NODE = 'SET citus.enable_ddl_propagation = off';

/**
 * Runs a statement on every worker with the session's role.
 * @throws Error when it fails on one of them
 */
export async function runOnWorkers(session: pg.ClientBase, statement: string): Promise<void> {
  const { rows } = await session.query<{ result: string }>('SELECT result FROM pg_catalog.run_command_on_workers($1) WHERE NOT success', [
    statement,
  ]);
  const [failed] = rows;
  if (failed !== undefined) throw new Error(`a worker of Citus refused a statement: ${failed.result}`);
}
