import type { Config } from './config.ts';
import type { Service } from './service.ts';

/** Shown when the service has started: the addresses of the doors, and commands to paste into a shell. */
export function banner(config: Config, { httpPort, wirePort }: Pick<Service, 'httpPort' | 'wirePort'>): string {
  const host = config.POSTERN_HOST === '0.0.0.0' || config.POSTERN_HOST === '::' ? '127.0.0.1' : config.POSTERN_HOST;
  const scheme = config.POSTERN_TLS_CERT === undefined ? 'http' : 'https';
  const at = host.includes(':') ? `[${host}]` : host;
  const body = '{"orgName":"Acme","email":"a@acme.test"}';
  return `
Postern is open.

  HTTP  ${scheme}://${at}:${httpPort}   (docs: ${scheme}://${at}:${httpPort}/docs)
  wire  postgres://${at}:${wirePort}

Sign up. The answer has the id and the apiKey, which is shown only this once:

  curl -X POST ${scheme}://${at}:${httpPort}/api/auth/signup -H 'content-type: application/json' -d '${body}'

Connect with them:

  export ORG=… API_KEY=…
  PGPASSWORD=$API_KEY psql -h ${host} -p ${wirePort} -U $ORG $ORG

`;
}
