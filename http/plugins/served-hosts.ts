import { isIPv4 } from 'node:net';
import type { FastifyInstance } from 'fastify';
import type { Config } from '../../src/config.ts';
import { ServiceError } from '../../src/errors.ts';

/** Whether requests for a host are answered, by their Host header. */
export type IsServedHost = (host: string | undefined) => boolean;

/**
 * A Postern on a loopback address answers requests for names of that address alone: a page in a browser on the same machine
 * could otherwise have its own name resolve to 127.0.0.1, and then call Postern and read the replies (DNS rebinding). Browsers
 * always say which host they mean.
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

/** Answers 421 where another host is meant. */
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

/** Without the port, and the dot or the brackets that it may be written with. */
function nameOf(host: string): string {
  const name = host.toLowerCase().replace(/:\d*$/, '');
  return name.startsWith('[') ? name.slice(1, -1) : name.replace(/\.$/, '');
}

/** @see https://www.rfc-editor.org/rfc/rfc6761#section-6.3 */
function isLoopback(name: string): boolean {
  return name === 'localhost' || name === '::1' || name.endsWith('.localhost') || (isIPv4(name) && name.startsWith('127.'));
}
