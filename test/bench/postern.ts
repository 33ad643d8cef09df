import { readFileSync } from 'node:fs';
import { mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { doorsAt, type TestOrganization } from '../support/doors.ts';
import { type Child, launch, waitFor } from './child.ts';
import type { BenchCluster } from './cluster.ts';
import type { Mechanism } from './mechanisms.ts';
import type { Options } from './options.ts';
import { pinToFirst } from './proc.ts';

const MAIN = fileURLToPath(new URL('../../src/main.js', import.meta.url));
const REGISTER = fileURLToPath(new URL('register-replacement.js', import.meta.url));
const PACKAGE = new URL('../../../package.json', import.meta.url);

export const SECRET = 'a secret for as long as the bench runs';

/** Postern as its users run it: a process of its own with everything on. */
export interface Postern {
  readonly child: Child;
  readonly wirePort: number;
  readonly httpUrl: string;
  signUp(): Promise<TestOrganization>;
}

export interface PosternOptions {
  readonly cluster: BenchCluster;
  readonly folder: string;
  readonly pool: number;
  readonly options: Pick<Options, 'pin'>;
  /** Where to leave a profile of the processor's time. */
  readonly profiles?: string | undefined;
  /** What it is to do without. */
  readonly without?: Mechanism;
  /** Settings besides. */
  readonly env?: Readonly<Record<string, string>>;
}

/** Everything is as it is by default but the limits that other poolers are not given either; POSTERN_ variables of ours are passed on. */
export async function startPostern({ cluster, folder, pool, options, profiles, without, env }: PosternOptions): Promise<Postern> {
  const own = await mkdtemp(join(folder, 'postern-'));
  const flags = [
    ...startFlags().filter((flag) => flag !== without?.flag),
    ...(profiles === undefined ? [] : ['--cpu-prof', `--cpu-prof-dir=${profiles}`]),
    ...(without?.replacement === undefined ? [] : ['--import', REGISTER]),
  ];
  const child = launch({
    command: process.execPath,
    args: [...flags, MAIN],
    log: join(own, 'log'),
    env: {
      PATH: process.env.PATH,
      DATABASE_URL: cluster.adminUrl,
      POSTERN_SECRET: SECRET,
      POSTERN_DATA_DIR: own,
      POSTERN_HTTP_PORT: '0',
      POSTERN_PG_PORT: '0',
      POSTERN_OPS_PORT: '0',
      POSTERN_BACKENDS_PER_TENANT: String(pool),
      POSTERN_CLIENTS_PER_TENANT: '5000',
      ...ownVariables(),
      ...env,
      ...without?.env,
      ...(without?.replacement === undefined ? {} : { BENCH_REPLACEMENT: JSON.stringify(without.replacement) }),
    },
  });
  try {
    const { httpPort, wirePort } = await waitFor(child, async () => started(await child.output()));
    if (options.pin) await pinToFirst(child.pid);
    const { httpUrl, signUp } = doorsAt(httpPort, wirePort);
    return { child, wirePort, httpUrl, signUp };
  } catch (error) {
    await child.end('SIGKILL');
    throw error;
  }
}

/** What `npm start` gives to Node. */
function startFlags(): string[] {
  const { scripts } = JSON.parse(readFileSync(PACKAGE, 'utf8')) as { readonly scripts: { readonly start: string } };
  return scripts.start.split(' ').filter((word) => word.startsWith('--'));
}

export function ownVariables(): Record<string, string> {
  return Object.fromEntries(
    Object.entries(process.env).flatMap(([name, value]) => (name.startsWith('POSTERN_') && value ? [[name, value]] : [])),
  );
}

export function makeProfileFolder(): Promise<string> {
  return mkdtemp(join(tmpdir(), 'postern-profiles-'));
}

function started(log: string): { httpPort: number; wirePort: number } | undefined {
  const line = /^\{.*"event":"service\.started".*\}$/m.exec(log)?.[0];
  return line === undefined ? undefined : JSON.parse(line);
}
