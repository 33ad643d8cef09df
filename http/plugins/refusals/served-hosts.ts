import { isIPv4 } from 'node:net';
import type { FastifyInstance } from 'fastify';
import type { Config } from '../../../src/config.ts';
import { ServiceError } from '../../../src/errors.ts';

/** Whether requests with this Host header are answered. */
export type IsServedHost = (host: string | undefined) => boolean;

/**
 * On a loopback address Postern answers only requests for names of that address. Otherwise a web page in a browser on the same machine
 * could make its own name resolve to 127.0.0.1, call Postern and read the replies (DNS rebinding). Browsers always send the Host
 * header.
 */
export function servedHosts({ POSTERN_HOST, POSTERN_PUBLIC_HOST }: Pick<Config, 'POSTERN_HOST' | 'POSTERN_PUBLIC_HOST'>): IsServedHost {
  const own = POSTERN_HOST.toLowerCase();
  if (!isLoopback(own)) return () => true;
  const publicHost = POSTERN_PUBLIC_HOST?.toLowerCase();
  return (host = '') => {
    const name = nameOf(host);
    return name === '' || isLoopback(name) || name === own || name === publicHost;
  };
}

/** Answers 421 to requests for another host. */
export function refuseOtherHosts(app: FastifyInstance, isServedHost: IsServedHost): void {
  app.addHook('onRequest', ({ headers: { host } }, _reply, done) => {
    done(isServedHost(host) ? undefined : misdirected(host));
  });
}

/** @see https://www.rfc-editor.org/rfc/rfc9110#status.421 */
function misdirected(host = ''): ServiceError {
  return new ServiceError('misdirected_request', `"${host.slice(0, 100)}" is no host that is served here`, {
    hint: 'This Postern listens on a loopback address: it answers requests for localhost, for loopback addresses, and for POSTERN_PUBLIC_HOST.',
  });
}

/** The host without port, trailing dot or brackets. */
export function nameOf(host: string): string {
  const name = host.toLowerCase().replace(/:\d*$/, '');
  return name.startsWith('[') ? name.slice(1, -1) : name.replace(/\.$/, '');
}

/** @see https://www.rfc-editor.org/rfc/rfc6761#section-6.3 */
function isLoopback(name: string): boolean {
  return name === 'localhost' || name === '::1' || name.endsWith('.localhost') || (isIPv4(name) && name.startsWith('127.'));
}
