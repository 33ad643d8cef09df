import type { Config } from '../../src/config.ts';
import type { Observe } from '../../src/observation.ts';
import type { Router } from '../../src/router/router.ts';
import type { ErrorCode } from '../errors.ts';

/** Where clients are told to connect with a wire client. */
export interface WireAddress {
  readonly host: string;
  readonly port: number;
  readonly sslmode: 'disable' | 'prefer' | 'require';
}

/** What the routes work with. */
export interface RouteContext {
  readonly router: Pick<Router, 'authenticate' | 'lease' | 'signUp' | 'rotateKey'> & {
    readonly catalog: { readonly audit: Pick<Router['catalog']['audit'], 'list' | 'verify'> };
  };
  readonly config: Config;
  readonly observe: Observe;
  /** The wire door as clients reach it; asked at each call, since its port may be known only after listening. */
  readonly connection: () => WireAddress;
  /** Whether the backing Postgres answers. */
  readonly ready: () => Promise<boolean>;
}

/** What can go wrong on the way to a database session. */
export const LEASE_ERRORS: readonly ErrorCode[] = [
  'pool_timeout',
  'too_many_connections',
  'not_ready',
  'backend_lost',
  'database_busy',
  'database_unavailable',
];

/** What can go wrong while SQL runs. */
export const SQL_ERRORS: readonly ErrorCode[] = [
  'sql_error',
  'unsupported_statement',
  'statement_canceled',
  'lock_not_available',
  'serialization_failure',
  'deadlock_detected',
  'statement_timeout',
  'response_too_large',
];

export const JSON_TYPE = 'application/json; charset=utf-8';
