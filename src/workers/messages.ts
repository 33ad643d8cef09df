import type { MetricObjectWithValues, MetricValue } from 'prom-client';
import type { BackingPostgres } from '../backing-postgres.ts';
import type { Config } from '../config.ts';

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
  | { readonly kind: 'granted'; readonly cluster: string; readonly organizationId: string }
  /** Another worker needs a session, of this organization or any: close one that has not been used for a while. */
  | { readonly kind: 'reclaim'; readonly cluster: string; readonly request: number; readonly organizationId: string | undefined }
  /** Another worker has fewer: close an idle session, or the next that is released. */
  | { readonly kind: 'owe'; readonly cluster: string; readonly organizationId: string }
  /** No other worker is due for a session any more. */
  | { readonly kind: 'settled'; readonly cluster: string; readonly organizationId: string }
  | { readonly kind: 'sessions'; readonly request: number; readonly count: number }
  | { readonly kind: 'metrics'; readonly request: number; readonly text: string }
  /** What are this worker's metrics? */
  | { readonly kind: 'own metrics'; readonly request: number };

/** What a worker tells the supervisor. */
export type ToSupervisor =
  /** It can be started. */
  | { readonly kind: 'loaded' }
  | { readonly kind: 'started' }
  | { readonly kind: 'limits'; readonly cluster: string; readonly max: number; readonly maxPerTenant: number }
  | { readonly kind: 'acquire'; readonly cluster: string; readonly organizationId: string }
  /** It needs one less than it has asked for. */
  | { readonly kind: 'withdraw'; readonly cluster: string; readonly organizationId: string }
  | { readonly kind: 'release'; readonly cluster: string; readonly organizationId: string }
  /** It has no unused session to close. */
  | { readonly kind: 'kept'; readonly cluster: string; readonly request: number }
  /** A wire session of the organization has been added, or has ended. */
  | { readonly kind: 'session'; readonly organizationId: string; readonly change: 1 | -1 }
  /** How many wire sessions does the organization have? */
  | { readonly kind: 'sessions'; readonly request: number; readonly organizationId: string }
  /** The metrics of all workers are asked for. */
  | { readonly kind: 'metrics'; readonly request: number }
  | { readonly kind: 'own metrics'; readonly request: number; readonly metrics: OwnMetrics };

export type OwnMetrics = readonly MetricObjectWithValues<MetricValue<string>>[];
