import type { Observe } from '../observation.ts';
import type { AuditLog } from './audit/log.ts';
import type { ControlPool } from './database/control-pool.ts';
import { deleteOldAttempts } from './organizations/hourly-limits.ts';
import { deleteExpiredInvitations } from './organizations/invitations.ts';
import { deleteOldRequests } from './processes/request-rows.ts';
import { deleteOldStatistics } from './query-statistics/stored-statistics.ts';
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

  /** Begins no further deletion. Resolves when nothing is being deleted any more. */
  stop(): Promise<void> {
    clearInterval(this.#timer);
    this.#timer = undefined;
    return this.#running;
  }

  #run(): void {
    this.#running = this.#deleteOld();
  }

  /** What cannot be deleted now is reported, and tried again the next time; the rest is deleted all the same. */
  async #deleteOld(): Promise<void> {
    const { database, audit, auditDays, now, observe } = this.#options;
    const deletions: Readonly<Record<string, () => Promise<unknown>>> = {
      'counts of sign-ups': () => database.run((sql) => deleteOldAttempts(sql, now())),
      invitations: () => database.run((sql) => deleteExpiredInvitations(sql, now())),
      'query statistics': () => database.run((sql) => deleteOldStatistics(sql, now())),
      'usage figures': () => database.run((sql) => deleteOldUsage(sql, now())),
      'requests between processes': () => database.run((sql) => deleteOldRequests(sql)),
      'audit entries': () => audit.deleteOlderThan(auditDays),
    };
    for (const [rows, deleteRows] of Object.entries(deletions)) {
      if (this.#timer === undefined) return;
      try {
        await deleteRows();
      } catch (cause) {
        observe({ name: 'service.warning', message: `old ${rows} could not be deleted`, cause });
      }
    }
  }
}
