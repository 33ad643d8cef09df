import type { BackendConnection } from '../backend/connection.ts';
import type { RestrictedScope } from '../catalog/key-rows.ts';
import type { Placement } from '../catalog/organization.ts';
import type { Platform } from './cluster.ts';
import { DatabaseProvisioner } from './database.ts';
import type { PlacementProvisioner, Provisioner, ProvisionerOptions } from './provisioner.ts';
import { Roles, type RunningProcess, type SessionCount } from './roles.ts';
import { SchemaProvisioner } from './schema.ts';

/** Both kinds of placement. An organization keeps its placement; new ones get the configured kind. */
export class ProvisionerByKind implements Provisioner {
  readonly #provisioners: Readonly<Record<Placement['kind'], PlacementProvisioner>>;
  readonly #databases: DatabaseProvisioner;
  readonly #forNew: Placement['kind'];
  readonly #platform: Platform;
  readonly #roles: Roles;

  constructor(options: ProvisionerOptions, forNew: Placement['kind']) {
    this.#databases = new DatabaseProvisioner(options);
    this.#provisioners = { database: this.#databases, schema: new SchemaProvisioner(options) };
    this.#forNew = forNew;
    this.#platform = options.platform;
    this.#roles = new Roles(options.platform.cluster, options.connectionLimit);
  }

  /** @param kind undefined: the configured one */
  placementFor(organizationId: string, kind = this.#forNew): Placement {
    return this.#provisioners[kind].placementFor(organizationId);
  }

  provision(placement: Placement, restricted?: readonly RestrictedScope[]): Promise<void> {
    return this.#provisioners[placement.kind].provision(placement, restricted);
  }

  deprovision(placement: Placement): Promise<void> {
    return this.#provisioners[placement.kind].deprovision(placement);
  }

  removeCopy(copy: Placement, kept: Placement): Promise<void> {
    return this.#provisioners[copy.kind].removeCopy(copy, kept);
  }

  close(placement: Placement): Promise<void> {
    return this.#provisioners[placement.kind].close(placement);
  }

  reopen(placement: Placement): Promise<void> {
    return this.#provisioners[placement.kind].reopen(placement);
  }

  endSessions({ role }: Placement): Promise<readonly RunningProcess[]> {
    return this.#platform.alone(role, (session) => this.#roles.sessions.endWorkOfAll(session, role));
  }

  countSessions({ role }: Placement): Promise<SessionCount> {
    return this.#platform.run((session) => this.#roles.sessions.count(session, role));
  }

  terminateSessions({ role }: Placement): Promise<readonly RunningProcess[]> {
    return this.#platform.alone(role, (session) => this.#roles.sessions.terminateAll(session, role));
  }

  terminateNamed({ role }: Placement, name: string): Promise<void> {
    return this.#platform.alone(role, (session) => this.#roles.sessions.terminateNamed(session, role, name));
  }

  closeRoles({ role }: Placement): Promise<readonly RunningProcess[]> {
    return this.#platform.alone(role, (session) => this.#roles.takeOverAll(session, role));
  }

  copy(source: Placement, copy: Placement, timeoutMs: number): Promise<void> {
    return this.#databases.copy(source, copy, timeoutMs);
  }

  adopt(source: Placement, copy: Placement): Promise<void> {
    return this.#databases.adopt(source, copy);
  }

  admit(placement: Placement, scope: RestrictedScope): Promise<void> {
    return this.#provisioners[placement.kind].admit(placement, scope);
  }

  open(placement: Placement, signal?: AbortSignal): Promise<BackendConnection> {
    return this.#provisioners[placement.kind].open(placement, signal);
  }
}
