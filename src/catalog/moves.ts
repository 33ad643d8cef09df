import { randomBytes } from 'node:crypto';
import { ServiceError } from '../errors.ts';
import type { Origin } from '../observation.ts';
import { ADVISORY_LOCKS } from './advisory-locks.ts';
import type { AuditLog } from './audit/log.ts';
import { DONE } from './audit/records.ts';
import { claimPlace } from './clusters.ts';
import type { ControlPool, Sql } from './control-pool.ts';
import type { ChangeOrganization, Organization, Placement } from './organization.ts';
import { lockPause, type Pause } from './pauses.ts';

/** A move of an organization that has begun and is not finished. */
interface Move {
  /** The placement that the organization does not have: until the switch the new one, afterwards the former one. */
  readonly other: Placement;
  readonly hasSwitched: boolean;
  readonly begunAt: Date;
}

/** A move that cannot switch any more, and whose copy is to be removed. */
interface AbortedMove {
  readonly organizationId: string;
  readonly token: string;
  /** Where its copy may be. */
  readonly copy: Placement;
  /** The placement that the organization has. */
  readonly kept: Placement;
}

/** A move that has not switched, and whose mover is not there. */
export interface InterruptedMove extends AbortedMove {
  /** Whether this process has begun to undo it. */
  readonly isOwn: boolean;
}

interface MoveRow {
  readonly token: string;
  readonly other_placement: Placement;
  readonly has_switched: boolean;
  readonly begun_at: Date;
}

interface MoveRegistryOptions {
  readonly database: ControlPool;
  readonly audit: AuditLog;
  /** This process's number among those that share the database. */
  readonly process: number;
  readonly change: ChangeOrganization;
}

/** Moves of organizations to other placements, as the control database records them. An organization has one move at a time. */
export class MoveRegistry {
  readonly #options: MoveRegistryOptions;

  constructor(options: MoveRegistryOptions) {
    this.#options = options;
  }

  async find(organizationId: string): Promise<Move | undefined> {
    const rows = await this.#options.database.run(
      (sql) => sql<MoveRow[]>`
        select token, other_placement, has_switched, begun_at from postern.moves where organization_id = ${organizationId}`,
    );
    return rows.map(({ other_placement: other, has_switched: hasSwitched, begun_at: begunAt }) => ({ other, hasSwitched, begunAt }))[0];
  }

  /**
   * Records where the organization is going to be. Nothing has been made there yet.
   * @param token as of {@link newMoveToken}
   * @throws ServiceError `not_found`, `invalid_request` if it is not in use or is there already, `organization_busy`
   */
  begin(organizationId: string, token: string, to: Placement): Promise<Organization> {
    return this.#options.change(organizationId, async (sql, organization) => {
      const { status, placement } = organization;
      if (status !== 'active' && status !== 'suspended') throw invalid(`organization "${organizationId}" is ${status}`);
      if (isSamePlace(placement, to)) throw invalid(`organization "${organizationId}" is there already`);
      if (placement.cluster !== to.cluster) await claimPlace(sql, to);
      const [known] = await sql<MoveRow[]>`select * from postern.moves where organization_id = ${organizationId}`;
      if (known?.has_switched) throw invalid(`the last move of "${organizationId}" has not been finished: give --finish first`);
      if (known !== undefined) {
        const since = known.begun_at.toISOString();
        throw new ServiceError(
          'organization_busy',
          `a move of "${organizationId}" began at ${since}; if it does not run any more, the service undoes it soon, and --abort at once`,
        );
      }
      await this.#insert(sql, organizationId, token, to);
      return organization;
    });
  }

  /**
   * Has the organization be at the other placement, and ends the pause.
   * @param pause its token is that of the move
   * @param close closes the placement that it has had; nobody aborts the move meanwhile
   * @throws ServiceError `organization_busy` if the pause has ended too early, or the move has been aborted; and what `close` throws
   */
  switch(pause: Pause, origin: Origin, close: () => Promise<void>): Promise<Organization> {
    const { organizationId, token } = pause;
    return this.#options.change(organizationId, async (sql, organization) => {
      await lockPause(sql, pause);
      const [row] = await sql<{ to: Placement }[]>`
        select other_placement as to from postern.moves
        where organization_id = ${organizationId} and token = ${token} and not has_switched for update`;
      if (row === undefined) throw new ServiceError('organization_busy', `the move of "${organizationId}" has been aborted`);
      await close();
      const from = organization.placement;
      await sql`
        update postern.moves set has_switched = true, other_placement = ${JSON.stringify(from)}::text::jsonb
        where organization_id = ${organizationId}`;
      await sql`
        update postern.organizations
        set placement = ${JSON.stringify(row.to)}::text::jsonb, paused_by = null, paused_until = null, revision = revision + 1
        where id = ${organizationId}`;
      await this.#options.audit.appendWith(sql, { organizationId, action: 'organization.moved', origin, outcome: DONE });
      return { ...organization, placement: row.to };
    });
  }

  /**
   * Moves that have not switched and whose mover has ended or lost its connection: a process holds a lock on its number as long as it
   * receives notifications. A mover that has only lost its connection takes the lock again. Those that this process undoes are included.
   */
  interrupted(): Promise<InterruptedMove[]> {
    const { database, process } = this.#options;
    return database.run(
      (sql) => sql<InterruptedMove[]>`
        select m.organization_id as "organizationId", m.token, m.other_placement as copy, o.placement as kept, m.mover = ${process} as "isOwn"
        from postern.moves m join postern.organizations o on o.id = m.organization_id
        where not m.has_switched and m.mover is not null and o.status in ('active', 'suspended') and (m.mover = ${process} or not exists (
          select from pg_catalog.pg_locks
          where locktype = 'advisory' and classid = ${ADVISORY_LOCKS.process} and objid = m.mover and objsubid = 2
            and database = (select oid from pg_catalog.pg_database where datname = pg_catalog.current_database())))
        order by m.begun_at`,
    );
  }

  /**
   * Has this process undo a move: it cannot switch any more. Its pause has the new token.
   * @param token of the move; undefined: of any
   * @param made where the caller may have made something of its copy after somebody else has undone its move
   * @returns undefined if there is no such move, or it has switched
   */
  abort(organizationId: string, token?: string, made?: Placement): Promise<AbortedMove | undefined> {
    return this.#options.change(organizationId, async (sql, { placement: kept }) => {
      const aborted = { organizationId, token: newMoveToken(), kept };
      const [row] = await sql<MoveRow[]>`select * from postern.moves where organization_id = ${organizationId} for update`;
      if (row === undefined) {
        if (made === undefined || isSamePlace(made, kept)) return undefined;
        await this.#insert(sql, organizationId, aborted.token, made);
        return { ...aborted, copy: made };
      }
      if (row.has_switched || (token !== undefined && token !== row.token)) return undefined;
      await sql`
        update postern.moves set token = ${aborted.token}, mover = ${this.#options.process} where organization_id = ${organizationId}`;
      await sql`
        update postern.organizations set paused_by = ${aborted.token} where id = ${organizationId} and paused_by = ${row.token}`;
      return { ...aborted, copy: row.other_placement };
    });
  }

  /** Called when the copy of a move that has been aborted is removed. */
  async forget({ organizationId, token }: AbortedMove): Promise<void> {
    await this.#options.database.run(
      (sql) => sql`delete from postern.moves where organization_id = ${organizationId} and token = ${token}`,
    );
  }

  /** Called when the former copy has been removed. */
  async finish(organizationId: string, origin: Origin): Promise<void> {
    await this.#options.change(organizationId, async (sql) => {
      const rows = await sql`delete from postern.moves where organization_id = ${organizationId} and has_switched returning token`;
      if (rows.length === 0) return;
      await this.#options.audit.appendWith(sql, { organizationId, action: 'organization.move_finished', origin, outcome: DONE });
    });
  }

  /** Called when Citus has moved the organization's tables to another worker. It has the same placement. */
  async movedByCitus(organizationId: string, origin: Origin): Promise<void> {
    await this.#options.change(organizationId, (sql) =>
      this.#options.audit.appendWith(sql, { organizationId, action: 'organization.moved', origin, outcome: DONE }),
    );
  }

  async #insert(sql: Sql, organizationId: string, token: string, other: Placement): Promise<void> {
    await sql`
      insert into postern.moves (organization_id, token, mover, other_placement)
      values (${organizationId}, ${token}, ${this.#options.process}, ${JSON.stringify(other)}::text::jsonb)`;
  }
}

/** Names a move and its pause. A move that has been aborted and begun again has another one. */
export function newMoveToken(): string {
  return randomBytes(16).toString('hex');
}

/** Forgets the move of an organization that has been dropped. */
export async function deleteMove(sql: Sql, organizationId: string): Promise<void> {
  await sql`delete from postern.moves where organization_id = ${organizationId}`;
}

/** Of placements of one organization. */
function isSamePlace(one: Placement, other: Placement): boolean {
  return one.kind === other.kind && one.cluster === other.cluster;
}

function invalid(message: string): ServiceError {
  return new ServiceError('invalid_request', message);
}
