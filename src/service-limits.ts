import type { Config } from './config.ts';
import { type CountLimit, LocalLimit, type OpenCountLimit, SharedLimit } from './runtime/count-limit.ts';

/** How many clients, connections and requests the service lets in: of all workers together, where there are several. */
export interface ServiceLimits {
  /** Authenticated clients of the wire door, under one key. @param ownMax how many this process may have */
  clients(ownMax: number): CountLimit;
  /** Connections to the wire door that are not authenticated. @param ownMax how many this process may have */
  unauthenticated(ownMax: number): OpenCountLimit;
  /** Connections to the HTTP door. @param ownMax how many this process may have */
  httpConnections(ownMax: number): OpenCountLimit;
  /** Those of each organization that have shown a valid key: no more than are left for the others. @param ownMax as above, in all */
  authenticatedHttpConnections(ownMax: number): CountLimit;
  /** Connections of each organization to the wire door. */
  readonly clientsOfOrganization: CountLimit;
  /** Requests of each organization over HTTP that are under way. */
  readonly requestsOfOrganization: CountLimit;
}

/** The limits of a process that is alone. */
export function localLimits(config: Config): ServiceLimits {
  return {
    clients: (ownMax) => new LocalLimit(ownMax),
    unauthenticated: (ownMax) => () => new LocalLimit(ownMax),
    httpConnections: (ownMax) => () => new LocalLimit(ownMax),
    authenticatedHttpConnections: (ownMax) => new SharedLimit(ownMax),
    clientsOfOrganization: new LocalLimit(config.POSTERN_CLIENTS_PER_TENANT),
    requestsOfOrganization: new LocalLimit(config.POSTERN_HTTP_REQUESTS_PER_TENANT),
  };
}
