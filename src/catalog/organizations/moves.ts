import { ServiceError } from '../../errors.ts';
import type { Origin } from '../../observation.ts';
import { DONE } from '../audit/entries/record.ts';
import type { AuditLog } from '../audit/log.ts';
import { claimPlace } from '../clusters/cluster-rows.ts';
import type { Sql } from '../database/control-connection.ts';
import type { ControlPool } from '../database/control-pool.ts';
import type { Organization, Placement } from './organization.ts';
import type { ChangeOrganization } from './organizations.ts';
import { lockPause, type Pause } from './pauses.ts';

/** A move of an organization that has begun and is not finished. */
export interface Move {
  /** The placement that the organization does not have: until the switch the new one, afterwards the former one. */
  readonly other: Placement;
  readonly hasSwitched: boolean;
  readonly begunAt: Date;
}

interface MoveRow {
  readonly other_placement: Placement;
  readonly has_switched: boolean;
  readonly begun_at: Date;
}

export interface MoveChangesOptions {
  readonly database: ControlPool;
  readonly audit: AuditLog;
  readonly change: ChangeOrganization;
}

/** Moves of organizations to other placements, as the control database records them. An organization has one move at a time. */
export class MoveChanges {
  readonly #options: MoveChangesOptions;

  constructor(options: MoveChangesOptions) {
    this.#options = options;
  }

  async find(organizationId: string): Promise<Move | undefined> {
    const rows = await this.#options.database.run(
      (sql) => sql<MoveRow[]>`
        select other_placement, has_switched, begun_at from postern.moves where organization_id = ${organizationId}`,
    );
    return rows.map(({ other_placement: other, has_switched: hasSwitched, begun_at: begunAt }) => ({ other, hasSwitched, begunAt }))[0];
  }

  /**
   * Records where the organization is going to be. Nothing has been made there yet.
   * @param token random: a move that has been aborted and begun again has another one
   * @throws ServiceError `not_found`, `invalid_request` if it is not in use or is there already, `organization_busy`
   */
  begin(organizationId: string, token: string, to: Placement): Promise<Organization> {
    return this.#options.change(organizationId, async (sql, organization) => {
      const { status, placement } = organization;
      if (status !== 'active' && status !== 'suspended') throw invalid(`organization "${organizationId}" is ${status}`);
      if (placement.kind === to.kind && placement.cluster === to.cluster)
        throw invalid(`organization "${organizationId}" is there already`);
      if (placement.cluster !== to.cluster) await claimPlace(sql, to);
      const [known] = await sql<MoveRow[]>`select * from postern.moves where organization_id = ${organizationId}`;
      if (known?.has_switched) throw invalid(`the last move of "${organizationId}" has not been finished: give --finish first`);
      if (known !== undefined) {
        const since = known.begun_at.toISOString();
        throw new ServiceError(
          'organization_busy',
          `a move of "${organizationId}" began at ${since}; if it does not run any more, give --abort`,
        );
      }
      await sql`
        insert into postern.moves (organization_id, token, other_placement)
        values (${organizationId}, ${token}, ${JSON.stringify(to)}::text::jsonb)`;
      return organization;
    });
  }

  /**
   * Has the organization be at the other placement, and ends the pause.
   * @param token of the move
   * @throws ServiceError `organization_busy` if the pause has ended too early, or the move has been aborted
   */
  switch(pause: Pause, token: string, origin: Origin): Promise<Organization> {
    const { organizationId } = pause;
    return this.#options.change(organizationId, async (sql, organization) => {
      await lockPause(sql, pause);
      const [row] = await sql<{ to: Placement }[]>`
        select other_placement as to from postern.moves
        where organization_id = ${organizationId} and token = ${token} and not has_switched for update`;
      if (row === undefined) throw new ServiceError('organization_busy', `the move of "${organizationId}" has been aborted`);
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
   * Forgets a move that has not switched, so that it cannot any more.
   * @param token of the move; undefined: of any
   * @returns the placement where its copy may be; undefined: there is no such move
   */
  async abort(organizationId: string, token?: string): Promise<Placement | undefined> {
    return this.#options.change(organizationId, async (sql) => {
      const [row] = await sql<{ to: Placement }[]>`
        delete from postern.moves
        where organization_id = ${organizationId} and not has_switched and (${token ?? null}::text is null or token = ${token ?? null})
        returning other_placement as to`;
      return row?.to;
    });
  }

  /** Called when the former copy has been removed. */
  async finish(organizationId: string, origin: Origin): Promise<void> {
    await this.#options.change(organizationId, async (sql) => {
      const rows = await sql`delete from postern.moves where organization_id = ${organizationId} and has_switched returning token`;
      if (rows.length === 0) return;
      await this.#options.audit.appendWith(sql, { organizationId, action: 'organization.move_finished', origin, outcome: DONE });
    });
  }
}

/** Forgets the move of an organization that has been dropped. */
export async function deleteMove(sql: Sql, organizationId: string): Promise<void> {
  await sql`delete from postern.moves where organization_id = ${organizationId}`;
}

function invalid(message: string): ServiceError {
  return new ServiceError('invalid_request', message);
}
