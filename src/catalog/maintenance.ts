import type { Observe } from '../observation.ts';
import type { AuditLog } from './audit/log.ts';
import type { ControlPool } from './database/control-pool.ts';
import { deleteOldAttempts } from './organizations/hourly-limits.ts';
import { deleteExpiredInvitations } from './organizations/invitations.ts';
import { deleteOldRequests } from './processes/request-rows.ts';
import { deleteOldUsage } from './usage/stored-usage.ts';

const EVERY_MS = 3_600_000;

export interface MaintenanceOptions {
  readonly database: ControlPool;
  readonly audit: AuditLog;
  /** How long audit entries are kept. */
  readonly auditDays: number;
  readonly now: () => Date;
  readonly observe: Observe;
}

/** Deletes rows of the control database that are too old, at the start and then every hour. */
export class Maintenance {
  readonly #options: MaintenanceOptions;
  #timer: NodeJS.Timeout | undefined;
  #running: Promise<void> = Promise.resolve();

  constructor(options: MaintenanceOptions) {
    this.#options = options;
  }

  start(): void {
    this.#timer = setInterval(() => this.#run(), EVERY_MS);
    this.#run();
  }

  /** Resolves when nothing is being deleted any more. */
  stop(): Promise<void> {
    clearInterval(this.#timer);
    return this.#running;
  }

  #run(): void {
    this.#running = this.#deleteOld().catch((cause: unknown) => {
      this.#options.observe({ name: 'service.warning', message: 'old audit entries could not be deleted', cause });
    });
  }

  async #deleteOld(): Promise<void> {
    const { database, audit, auditDays, now } = this.#options;
    await database.run((sql) => deleteOldAttempts(sql, now()));
    await database.run((sql) => deleteExpiredInvitations(sql, now()));
    await database.run((sql) => deleteOldUsage(sql, now()));
    await database.run((sql) => deleteOldRequests(sql));
    await audit.deleteOlderThan(auditDays);
  }
}
