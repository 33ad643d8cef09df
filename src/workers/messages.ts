import type { MetricObjectWithValues, MetricValue } from 'prom-client';
import type { ChangeableSetting, Config } from '../config.ts';
import type { BackingPostgres } from '../embedded/embedded.ts';
import type { AllocatedLimits } from './limits.ts';

/** The limits of clients, connections and requests that the supervisor lends. Its other allocators are of backend sessions. */
export type LentLimits =
  | 'clients'
  | 'clients of an organization'
  | 'operators'
  | 'unauthenticated connections'
  | 'HTTP connections'
  | 'authenticated HTTP connections'
  | 'requests of an organization';

/** The allocator of the backend sessions on a cluster. */
export function backendsOf(cluster: string): string {
  return `backends of ${cluster}`;
}

/** What the supervisor tells a worker. */
export type ToWorker =
  | {
      readonly kind: 'start';
      readonly number: number;
      readonly config: Config;
      /** What operators have changed since the service was started. */
      readonly changes: readonly (readonly [setting: ChangeableSetting, value: string])[];
      readonly postgres: BackingPostgres;
      readonly greets: boolean;
    }
  | { readonly kind: 'reload' }
  | { readonly kind: 'stop'; readonly reason: string }
  /** Another worker has taken over: leave the ports, and end when the clients have left. */
  | { readonly kind: 'retire' }
  /** The worker may have so many more: backend sessions, clients, connections or requests of the organization. 0: the limit is reached. */
  | { readonly kind: 'granted'; readonly limit: string; readonly organizationId: string; readonly count: number }
  /** Another worker needs one, of this organization or any: give up what is unused, or if it may evict, close a connection. */
  | {
      readonly kind: 'reclaim';
      readonly limit: string;
      readonly request: number;
      readonly organizationId: string | undefined;
      readonly mayEvict: boolean;
    }
  /** Another worker has fewer: close an idle session, or the next that is released. */
  | { readonly kind: 'owe'; readonly limit: string; readonly organizationId: string }
  /** No other worker is due for a session any more. */
  | { readonly kind: 'settled'; readonly limit: string; readonly organizationId: string }
  /** So many have been taken of the bucket of an organization's requests, in which so many are left. */
  | { readonly kind: 'taken'; readonly organizationId: string; readonly count: number; readonly left: number }
  | { readonly kind: 'metrics'; readonly request: number; readonly text: string }
  /** What are this worker's metrics? */
  | { readonly kind: 'own metrics'; readonly request: number };

/** What a worker tells the supervisor. */
export type ToSupervisor =
  /** It can be started. */
  | { readonly kind: 'loaded' }
  | { readonly kind: 'started' }
  /** How many backend sessions the workers may have on a cluster. */
  | ({ readonly kind: 'limits'; readonly limit: string } & AllocatedLimits)
  /** It needs one more, and takes so many at once. */
  | {
      readonly kind: 'acquire';
      readonly limit: string;
      readonly organizationId: string;
      readonly count: number;
      /** Whether another worker may have to close a connection for it. */
      readonly mayEvict: boolean;
      /** The most that the organization may have, in all workers together; undefined: as many as others. */
      readonly max?: number;
    }
  /** It needs one less than it has asked for. */
  | { readonly kind: 'withdraw'; readonly limit: string; readonly organizationId: string }
  | { readonly kind: 'release'; readonly limit: string; readonly organizationId: string; readonly count: number }
  /** It has nothing to give up. */
  | { readonly kind: 'kept'; readonly limit: string; readonly request: number }
  /** An operator has changed a setting. */
  | { readonly kind: 'set'; readonly setting: ChangeableSetting; readonly value: string }
  /** It takes so many of the bucket of an organization's requests, or as many as there are. */
  | { readonly kind: 'take'; readonly organizationId: string; readonly perSecond: number; readonly count: number }
  /** It has not used so many of those. */
  | { readonly kind: 'give back'; readonly organizationId: string; readonly perSecond: number; readonly count: number }
  /** The metrics of all workers are asked for. */
  | { readonly kind: 'metrics'; readonly request: number }
  | { readonly kind: 'own metrics'; readonly request: number; readonly metrics: OwnMetrics };

export type OwnMetrics = readonly MetricObjectWithValues<MetricValue<string>>[];
