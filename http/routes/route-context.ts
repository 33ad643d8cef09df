import type { Placement } from '../../src/catalog/organization.ts';
import type { QueryStatistics } from '../../src/catalog/query-statistics.ts';
import type { Usage } from '../../src/catalog/usage.ts';
import type { Config } from '../../src/config.ts';
import type { Observe } from '../../src/observation.ts';
import type { ApiKeys, SignUps } from '../../src/router/accounts.ts';
import type { Authenticator } from '../../src/router/authenticator.ts';
import type { Clones } from '../../src/router/moves.ts';
import type { ConsoleSignIn } from '../../src/router/one-time-sign-in.ts';
import type { Operator } from '../../src/router/operator.ts';
import type { Router } from '../../src/router/router.ts';
import type { Sessions } from '../../src/router/sessions.ts';
import type { QueryScheduler } from '../../src/sql/query-scheduler.ts';
import type { RefusalCounter } from '../plugins/refusals/refusal-throttle.ts';
import type { WireAddress } from '../responses/connection-details.ts';

/** What the routes use. */
export interface RouteContext {
  readonly authenticator: Pick<Authenticator, 'authenticate' | 'recognize' | 'isInvalid'>;
  readonly router: Pick<Router, 'inputs' | 'lease' | 'results'> & {
    readonly catalog: {
      readonly organizations: Pick<Router['catalog']['organizations'], 'find' | 'updateProfile'>;
      readonly savedQueries: Pick<Router['catalog']['savedQueries'], 'list' | 'find' | 'save' | 'delete'>;
      readonly audit: Pick<Router['catalog']['audit'], 'list' | 'verify'>;
    };
  };
  readonly signUps: Pick<SignUps, 'create'>;
  /** Only where the service has been started for development. */
  readonly consoleSignIn?: Pick<ConsoleSignIn, 'redeem'>;
  readonly operator: Pick<Operator, 'dropAsAsked'>;
  readonly clones: Pick<Clones, 'create' | 'list' | 'delete'>;
  readonly keys: Pick<ApiKeys, 'list' | 'create' | 'update' | 'revoke' | 'rotate'>;
  readonly sessions: Pick<Sessions, 'idOf' | 'list' | 'signal'>;
  readonly queries: QueryScheduler;
  readonly statistics: {
    /** Of the organization's server. @throws ServiceError `not_ready` */
    readonly queries: Pick<QueryStatistics, 'read'>;
    readonly usage: Pick<Usage, 'read' | 'counters'>;
    /** As {@link DataSizes}. */
    readonly dataBytes: (placement: Placement) => Promise<number>;
    /** Requests of an organization in progress. */
    readonly requestsOf: (organizationId: string) => number;
    /** As {@link relationCounters} of the shared database. */
    readonly relationCounters: (placement: Placement) => Promise<string | undefined>;
  };
  readonly refusals: RefusalCounter;
  readonly config: Config;
  readonly observe: Observe;
  /**
   * The wire door's address for clients. It is a function because the port may be known only after listening.
   * @param asked the host that the client has sent its request to, if it is a valid name or address
   */
  readonly connection: (asked: string | undefined) => WireAddress;
  /** Whether PostgreSQL answers. */
  readonly ready: () => Promise<void>;
}
