import type { FastifyRequest } from 'fastify';
import { type Config, isHost } from '../../src/config.ts';
import { nameOf } from '../plugins/refusals/served-hosts.ts';

/** The address of the wire door in replies. */
export interface WireAddress {
  readonly host: string;
  readonly port: number;
  readonly sslmode: 'disable' | 'prefer' | 'require';
}

/** How an organization connects to the wire door: in parts, and as a URL. */
export interface ConnectionDetails {
  readonly connection: WireAddress & { readonly user: string; readonly database: string };
  readonly connectionString: string;
}

/** @param apiKey undefined: the URL has no password */
export function connectionDetails(
  id: string,
  apiKey: string | undefined,
  { headers }: FastifyRequest,
  addressOf: (asked: string | undefined) => WireAddress,
): ConnectionDetails {
  const asked = nameOf(headers.host ?? '');
  const { host, port, sslmode } = addressOf(isHost(asked) ? asked : undefined);
  const userinfo = apiKey === undefined ? id : `${id}:${apiKey}`;
  const authority = `${host.includes(':') ? `[${host}]` : host}:${port}`;
  // If there is TLS, the URL demands it: a client that falls back to plain text could be made to by an attacker on the network.
  const mode = sslmode === 'disable' ? 'disable' : 'require';
  return {
    connection: { host, port, user: id, database: id, sslmode },
    connectionString: `postgres://${userinfo}@${authority}/${id}?sslmode=${mode}`,
  };
}

/**
 * Where clients find the wire door. They cannot connect to an unspecified address such as 0.0.0.0: they have reached another name.
 * @param asked the host that the client has sent its request to
 */
export function wireAddress(
  config: Config,
  door: { readonly port: number; readonly hasTls: boolean },
  asked: string | undefined,
): WireAddress {
  const host = config.POSTERN_PUBLIC_HOST ?? config.POSTERN_HOST;
  const isUnspecified = host === '0.0.0.0' || host === '::';
  return {
    host: isUnspecified ? (asked ?? 'localhost') : host,
    port: door.port,
    sslmode: !door.hasTls || config.POSTERN_TLS === 'off' ? 'disable' : config.POSTERN_TLS,
  };
}
