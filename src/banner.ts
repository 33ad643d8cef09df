import type { Config } from './config.ts';
import type { Service } from './service.ts';

const SIGN_UP_BODY = '{"orgName":"Acme","email":"a@acme.test"}';

/** People see where the doors are and how to go on. Programs have it in the log's line `service.started`. */
export async function greetOnTerminal(config: Config, service: Service): Promise<string> {
  if (!process.stdout.isTTY) return '';
  const organizations = await service.operator.organizations();
  return banner(config, service, { isNew: organizations.every(({ status }) => status === 'dropped') });
}

/**
 * The addresses of the doors, and commands to paste into a shell.
 * @param isNew whether there is no organization yet
 */
export function banner(config: Config, ports: Ports, { isNew }: { readonly isNew: boolean }): string {
  const { host } = addressOf(config);
  const which = isNew ? 'them' : 'the id and the key of an organization';
  return `
Postern is open.

${doorsOf(config, ports)}
${isNew ? `${signUpHint(config, ports)}\n` : ''}Connect with ${which}:

  export ORG=… API_KEY=…
  export DATABASE_URL=${databaseUrl(config, ports, { id: '$ORG', apiKey: '$API_KEY' })}
  PGPASSWORD=$API_KEY psql -h ${host} -p ${ports.wirePort} -U $ORG $ORG

Ctrl-C stops it.

`;
}

function signUpHint(config: Config, ports: Ports): string {
  switch (config.POSTERN_SIGNUP) {
    case 'open':
      return `Sign up. The answer has the id and the apiKey, which is shown only this once:

  curl -X POST ${httpUrl(config, ports)}/api/auth/signup -H 'content-type: application/json' -d '${SIGN_UP_BODY}'
`;
    case 'invite':
      return `Sign-up needs an invitation. This prints one:

  npx postern admin invite
`;
    case 'closed':
      return `Sign-up is closed. This makes an organization, and prints its id and its key:

  npx postern admin org create Acme a@acme.test
`;
  }
}

type Ports = Pick<Service, 'httpPort' | 'wirePort'>;

/** The lines that name both doors. */
export function doorsOf(config: Config, ports: Ports): string {
  const url = httpUrl(config, ports);
  const console = config.POSTERN_CONSOLE === 'on' ? `, console: ${url}/console` : '';
  return `  HTTP  ${url}   (docs: ${url}/docs${console})\n  wire  postgres://${addressOf(config).at}:${ports.wirePort}\n`;
}

export function httpUrl(config: Config, { httpPort }: Ports): string {
  const scheme = config.POSTERN_TLS_CERT === undefined ? 'http' : 'https';
  return `${scheme}://${addressOf(config).at}:${httpPort}`;
}

/** What drivers take, with the key in it. */
export function databaseUrl(config: Config, { wirePort }: Ports, { id, apiKey }: { readonly id: string; readonly apiKey: string }): string {
  const tls = config.POSTERN_TLS_CERT === undefined || config.POSTERN_TLS === 'off' ? '' : '?sslmode=require';
  return `postgres://${id}:${apiKey}@${addressOf(config).at}:${wirePort}/${id}${tls}`;
}

/** Where clients on this machine connect to. Nobody can connect to an unspecified address such as 0.0.0.0. */
function addressOf(config: Config): { readonly host: string; readonly at: string } {
  const host = config.POSTERN_HOST === '0.0.0.0' || config.POSTERN_HOST === '::' ? '127.0.0.1' : config.POSTERN_HOST;
  return { host, at: host.includes(':') ? `[${host}]` : host };
}
