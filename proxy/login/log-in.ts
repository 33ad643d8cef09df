import { ServiceError } from '../../src/errors.ts';
import type { Origin } from '../../src/observation.ts';
import type { StartupMessage } from '../../src/protocol/startup.ts';
import type { Authenticator } from '../../src/router/authenticator.ts';
import { requireDatabase, type Tenant } from '../../src/router/lease.ts';
import type { ClientConnection } from '../client-connection.ts';
import { authenticate, type LoginMethod } from './authentication.ts';

const MAX_NAME_BYTES = 63;

/** An authenticated client. */
export interface AuthenticatedClient {
  readonly tenant: Tenant;
  readonly startup: StartupMessage;
  readonly origin: Origin;
}

/**
 * Authenticates a client by its startup message, and checks what else that asks for.
 * @throws ServiceError to be sent as FATAL, ClientGone
 */
export async function logIn(
  client: ClientConnection,
  startup: StartupMessage,
  method: LoginMethod['method'],
  authenticator: Authenticator,
): Promise<AuthenticatedClient> {
  const user = requiredUser(startup);
  const replication = wantsReplication(startup);
  const origin = originOf(client, startup);
  const tenant = await authenticate(client, user, authenticator, { method, channelBinding: client.channelBinding }, origin);
  if (replication) throw new ServiceError('unsupported_protocol', 'replication connections are not supported');
  requireDatabase(tenant, startup.parameters.get('database') || user);
  return { tenant, startup, origin };
}

/** As in Postgres, longer names are truncated. */
function requiredUser({ parameters }: StartupMessage): string {
  const given = parameters.get('user') ?? '';
  const user = Buffer.byteLength(given) <= MAX_NAME_BYTES ? given : Buffer.from(given).subarray(0, MAX_NAME_BYTES).toString();
  if (user === '') throw new ServiceError('not_allowed', 'no PostgreSQL user name specified in startup packet');
  return user;
}

/** @returns whether the client requests a replication connection */
function wantsReplication({ parameters }: StartupMessage): boolean {
  const value = parameters.get('replication') ?? 'false';
  if (/^(?:f|fa|fal|fals|false|n|no|of|off|0)$/i.test(value)) return false;
  if (/^(?:t|tr|tru|true|y|ye|yes|on|1|database)$/i.test(value)) return true;
  throw new ServiceError('invalid_request', `invalid value for parameter "replication": "${value}"`, {
    hint: 'Valid values are: "false", 0, "true", 1, "database".',
  });
}

function originOf(client: ClientConnection, { parameters }: StartupMessage): Origin {
  const applicationName = parameters.get('application_name');
  return { surface: 'wire', sourceIp: client.remoteAddress, ...(applicationName === undefined ? {} : { applicationName }) };
}
