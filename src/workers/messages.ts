import type { Config } from '../config.ts';
import type { BackingPostgres } from '../service.ts';

/** What the supervisor tells a worker. */
export type ToWorker =
  | {
      readonly kind: 'start';
      readonly number: number;
      readonly config: Config;
      readonly postgres: BackingPostgres;
      readonly greets: boolean;
    }
  | { readonly kind: 'reload' }
  | { readonly kind: 'stop'; readonly reason: string }
  /** Another worker has taken over: leave the ports, and end when the clients have left. */
  | { readonly kind: 'retire' }
  /** One more backend session of the organization may be opened. */
  | { readonly kind: 'granted'; readonly organizationId: string }
  /** Another worker needs a session, of this organization or any: close an idle one, or the next that becomes idle. */
  | { readonly kind: 'reclaim'; readonly request: number; readonly organizationId: string | undefined }
  /** No worker has an idle one: close the next that is released. */
  | { readonly kind: 'owe'; readonly organizationId: string | undefined }
  /** No other worker needs a session any more. */
  | { readonly kind: 'settled'; readonly organizationId: string | undefined }
  | { readonly kind: 'sessions'; readonly request: number; readonly count: number }
  | { readonly kind: 'metrics'; readonly request: number; readonly text: string };

/** What a worker tells the supervisor. */
export type ToSupervisor =
  /** It can be started. */
  | { readonly kind: 'loaded' }
  | { readonly kind: 'started' }
  | { readonly kind: 'limits'; readonly max: number; readonly maxPerTenant: number }
  | { readonly kind: 'acquire'; readonly organizationId: string }
  | { readonly kind: 'release'; readonly organizationId: string }
  /** It has no idle session to close. */
  | { readonly kind: 'kept'; readonly request: number }
  /** A wire session of the organization has been added, or has ended. */
  | { readonly kind: 'session'; readonly organizationId: string; readonly change: 1 | -1 }
  /** How many wire sessions does the organization have? */
  | { readonly kind: 'sessions'; readonly request: number; readonly organizationId: string }
  /** The metrics of all workers are asked for. */
  | { readonly kind: 'metrics'; readonly request: number };
