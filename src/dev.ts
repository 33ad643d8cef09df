import { readFile } from 'node:fs/promises';
import { resolve } from 'node:path';
import { openOperator } from './admin/operations.ts';
import { databaseUrl, doorsOf, httpUrl } from './banner.ts';
import { ENV_FILE as FILE, variablesIn } from './client/organization-api.ts';
import { type Config, isOfAnOrganization } from './config.ts';
import { replaceFile } from './embedded/data-directory.ts';
import { isFree, PORT_SETTINGS } from './ports.ts';
import { ConsoleSignIn, SIGN_IN_MINUTES } from './router/one-time-sign-in.ts';
import type { Service } from './service.ts';
import { runService } from './service-process.ts';
import { hasCode } from './system-errors.ts';

type Environment = Readonly<Record<string, string | undefined>>;

interface Developer {
  readonly id: string;
  readonly apiKey: string;
  /** Whether the key may make others, such as one for the console. */
  readonly isAdmin: boolean;
  /** How it was come by. */
  readonly note: string;
}

const NAME = 'dev';
const EMAIL = 'dev@postern.test';

/**
 * `postern dev`: the service on free ports, the same as the last time if they are free, with an organization whose key is kept in
 * `.env.postern` in the current folder.
 */
export async function runForDevelopment(environment: Environment): Promise<void> {
  const path = resolve(FILE);
  const file = await readEnvFile(path);
  const consoleSignIn = new ConsoleSignIn();
  const greet = async (config: Config, service: Service): Promise<string> => {
    const { id, apiKey, isAdmin, note } = await developer(config, service, file);
    const url = databaseUrl(config, service, { id, apiKey });
    const variables = { DATABASE_URL: url, ORG: id, API_KEY: apiKey, API_URL: httpUrl(config, service) };
    if (file.isOurs) await writeEnvFile(path, variables);
    const kept = file.isOurs
      ? `${FILE} has it, with ORG, API_KEY and API_URL. To use it in a shell:\n\n  set -a; . ./${FILE}; set +a\n`
      : `${FILE} is not of Postern's making and stays as it is; so the key is not kept, and the next start makes another.\n`;
    const hasAddress = isAdmin && config.POSTERN_CONSOLE === 'on';
    const address = hasAddress
      ? consoleHint(`${httpUrl(config, service)}/console`, consoleSignIn.issue({ organizationId: id, apiKey }))
      : '';
    return `\nPostern is open, for development. ${note}\n\n${doorsOf(config, service)}\n${address}DATABASE_URL=${url}\n\n${kept}\n`;
  };
  const own = { ...withoutSignUpLimit(await withFreePorts(withoutOwnUrl(environment), file)), POSTERN_WORKERS: '1' };
  await runService(own, greet, { consoleSignIn });
}

function consoleHint(consoleUrl: string, token: string): string {
  return `This address signs in to the console, once, within ${SIGN_IN_MINUTES} minutes:\n\n  ${consoleUrl}#/sign-in/${token}\n\n`;
}

/** A shell that has read `.env.postern` names Postern's own door, not the PostgreSQL behind it. */
function withoutOwnUrl(environment: Environment): Environment {
  const { DATABASE_URL: url = '', ...rest } = environment;
  return isOfAnOrganization(url) ? rest : environment;
}

/** Nobody but this machine's own users can sign up: tests of an application do by the hundred. */
function withoutSignUpLimit(environment: Environment): Environment {
  const { POSTERN_HOST: host, POSTERN_SIGNUPS_PER_HOUR: limit } = environment;
  return host || limit ? environment : { ...environment, POSTERN_SIGNUPS_PER_HOUR: '1000000' };
}

/** Ports that are set stay; the others are those of the last start, so that its addresses go on to work, or any. */
async function withFreePorts(environment: Environment, { variables }: EnvFile): Promise<Environment> {
  const former: Environment = {
    POSTERN_HTTP_PORT: portOf(variables.get('API_URL')),
    POSTERN_PG_PORT: portOf(variables.get('DATABASE_URL')),
  };
  const chosen = PORT_SETTINGS.map(async (setting) => {
    const given = environment[setting] || (setting === 'POSTERN_HTTP_PORT' && environment.PORT);
    if (given) return [setting, given];
    const port = former[setting] ?? '0';
    return [setting, (await isFree(environment.POSTERN_HOST || '127.0.0.1', Number(port))) ? port : '0'];
  });
  return { ...environment, ...Object.fromEntries(await Promise.all(chosen)) };
}

function portOf(url: string | undefined): string | undefined {
  return URL.canParse(url ?? '') ? new URL(url ?? '').port || undefined : undefined;
}

/** The organization in the file, if its key is still good; otherwise the one named `dev`, which is made when there is none. */
async function developer(config: Config, { authenticator }: Service, { variables }: EnvFile): Promise<Developer> {
  const { operator, signUps, origin, close } = await openOperator(config);
  try {
    const apiKey = variables.get('API_KEY');
    const known = apiKey && (await authenticator.authenticate({ kind: 'bearer', apiKey }, origin).catch(() => undefined));
    if (known)
      return { id: known.organization.id, apiKey, isAdmin: known.key.scope === 'admin', note: `Its organization is that in ${FILE}.` };
    const former = (await operator.organizations()).find(({ email, status }) => email === EMAIL && status === 'active');
    if (former !== undefined) {
      const note = `Its organization "${former.name}" was there; it has a new key, and the old one is invalid.`;
      return { id: former.id, apiKey: await operator.issueKey(former.id, origin), isAdmin: true, note };
    }
    const made = await signUps.create({ orgName: NAME, email: EMAIL }, origin);
    return { id: made.organization.id, apiKey: made.apiKey, isAdmin: true, note: `Its organization "${NAME}" is new.` };
  } finally {
    await close();
  }
}

interface EnvFile {
  /** Whether Postern has written it, or it is not there: only then it may be written. */
  readonly isOurs: boolean;
  /** Empty if it is not ours. */
  readonly variables: ReadonlyMap<string, string>;
}

const HEADING = '# Written by postern dev, which replaces this file at each start. It holds a key: keep it out of version control.';

async function readEnvFile(path: string): Promise<EnvFile> {
  const text = await readFile(path, 'utf8').catch((error: unknown) => (hasCode(error, 'ENOENT') ? undefined : ''));
  if (text === undefined) return { isOurs: true, variables: new Map() };
  if (!text.startsWith(`${HEADING}\n`)) return { isOurs: false, variables: new Map() };
  return { isOurs: true, variables: new Map(Object.entries(variablesIn(text))) };
}

/** For its owner only. No value may need quotes. */
async function writeEnvFile(path: string, variables: Readonly<Record<string, string>>): Promise<void> {
  const lines = Object.entries(variables).map(([name, value]) => `${name}=${value}`);
  await replaceFile(path, `${[HEADING, ...lines].join('\n')}\n`, 0o600);
}
