import type { FastifyRequest } from 'fastify';
import { isHost } from '../../src/config.ts';
import { nameOf } from '../plugins/served-hosts.ts';
import type { RouteContext, WireAddress } from '../routes/route-context.ts';

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
  addressOf: RouteContext['connection'],
): ConnectionDetails {
  const asked = nameOf(headers.host ?? '');
  const { host, port, sslmode } = addressOf(isHost(asked) ? asked : undefined);
  const userinfo = apiKey === undefined ? id : `${id}:${apiKey}`;
  const authority = `${host.includes(':') ? `[${host}]` : host}:${port}`;
  // Where there is TLS, a URL that falls back to plain text would help nobody but who sits in between.
  const mode = sslmode === 'disable' ? 'disable' : 'require';
  return {
    connection: { host, port, user: id, database: id, sslmode },
    connectionString: `postgres://${userinfo}@${authority}/${id}?sslmode=${mode}`,
  };
}
