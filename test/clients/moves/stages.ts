import pg from 'pg';
import type { Doors } from '../../support/doors.ts';
import { eventually } from '../../support/eventually.ts';
import type { ServerLogin } from '../../support/server-url.ts';
import type { TestOrganization } from '../../support/service.ts';

/** The control database of a move, and how its server's superuser logs in. */
export interface MovePlace {
  readonly server: ServerLogin;
  readonly controlDatabase: string | undefined;
}

/** A point in a move to another database at which it has to wait. Organizations have the table `written`, with a column `n`. */
export interface Stage {
  /** A statement of the organization; the copy's part of it does not end. It may call `slow(n)`. */
  readonly slow?: string;
  /** Has the next move of an organization wait. @returns what ends that */
  hold?(place: MovePlace, organization: TestOrganization): Promise<() => Promise<unknown>>;
  /** A query of the control database, with the organization's id, that has rows when the move waits. */
  readonly reached: string;
}

export async function superuserIn(database: string | undefined, server: ServerLogin): Promise<pg.Client> {
  const client = new pg.Client({ ...server, database });
  await client.connect();
  return client;
}

/** Has the copy's part of a statement of the organization not end. */
export async function makeSlow(doors: Doors, organization: TestOrganization, statement: string): Promise<void> {
  const { body } = await doors.query(organization, 'SELECT current_database() AS here');
  // In two parts, or the copy would compare with the name that it has there.
  const here = body.rows[0].here.replace('_', "_' || '");
  await doors.query(
    organization,
    `CREATE FUNCTION slow(n int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN
       IF current_database() <> '${here}' THEN PERFORM pg_catalog.pg_sleep(3600); END IF; RETURN n; END $$`,
  );
  await doors.query(organization, statement);
}

export const STAGES = {
  'before anything is made': {
    async hold({ server, controlDatabase }, { id }) {
      const holder = await superuserIn(controlDatabase, server);
      await holder.query('SELECT pg_advisory_lock(hashtextextended($1, 0))', [id]);
      return () => holder.end();
    },
    reached: 'SELECT FROM postern.moves WHERE organization_id = $1',
  },
  'while it copies rows': {
    slow: 'ALTER TABLE written ADD CHECK (public.slow(n) = n)',
    reached: "SELECT FROM pg_stat_activity WHERE usename = $1 AND wait_event = 'PgSleep' AND query ~ '^COPY'",
  },
  'while it makes an index': {
    slow: 'CREATE INDEX ON written (public.slow(n))',
    reached: "SELECT FROM pg_stat_activity WHERE usename = $1 AND wait_event = 'PgSleep' AND query ~ '^CREATE INDEX'",
  },
  'before the switch': {
    async hold({ server, controlDatabase }, { id }) {
      const holder = await superuserIn(controlDatabase, server);
      await holder.query('BEGIN');
      // The record of the move is not read again before the switch.
      const lock = 'SELECT FROM postern.moves WHERE organization_id = $1 FOR UPDATE';
      const locked = eventually('the move is recorded', async () => (await holder.query(lock, [id])).rows.length > 0);
      return () => locked.finally(() => holder.end());
    },
    reached: `SELECT FROM pg_stat_activity a JOIN postern.organizations o ON o.id = $1
      WHERE a.wait_event_type = 'Lock' AND a.application_name = 'postern control' AND a.query ~ 'postern.moves'`,
  },
  'after it has closed the former placement': {
    async hold({ server, controlDatabase }, { id }) {
      const holder = await superuserIn(controlDatabase, server);
      // The switch is recorded in the audit log.
      await holder.query('BEGIN');
      await holder.query('SELECT FROM postern.audit_heads WHERE organization_id = $1 FOR UPDATE', [id]);
      return () => holder.end();
    },
    // A closed schema is not seen from the control database.
    reached: `SELECT FROM postern.organizations o LEFT JOIN pg_database d ON d.datname = o.id
      WHERE o.id = $1 AND CASE o.placement->>'kind' WHEN 'database' THEN NOT d.datallowconn
        ELSE EXISTS (SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query ~ 'audit_heads') END`,
  },
} as const satisfies Readonly<Record<string, Stage>>;
