import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { run } from './child.ts';

export interface WireLogin {
  readonly host: string;
  readonly port: number;
  readonly user: string;
  readonly password: string;
  readonly database: string;
}

export interface Load {
  /** Besides clients, threads, time and login. */
  readonly args: readonly string[];
  readonly clients: number;
  readonly seconds: number;
  readonly signal: AbortSignal;
}

export interface Outcome {
  readonly tps: number;
  readonly transactions: number;
}

/**
 * Connecting is part of the time, not of the rate: where it takes as long, the rate is NaN.
 * @returns transactions per second once all clients are connected
 * @throws Error with what pgbench said
 */
export async function pgbench(login: WireLogin, { args, clients, seconds, signal }: Load): Promise<Outcome> {
  const said = await run(findProgram('pgbench'), ['-n', '-c', String(clients), '-T', String(seconds), ...args, ...address(login)], {
    env: environment(login),
    signal,
  });
  const transactions = Number(/^number of transactions actually processed: (\d+)/m.exec(said)?.[1]);
  if (!/^number of failed transactions: 0 /m.test(said)) throw new Error(`pgbench against port ${login.port}: ${said}`);
  return { tps: Number(/^tps = ([\d.]+)/m.exec(said)?.[1]), transactions };
}

/** Makes pgbench's tables. A hundred thousand accounts for each of the scale, each about 100 bytes. */
export async function initialise(login: WireLogin, scale: number, signal: AbortSignal): Promise<void> {
  await run(findProgram('pgbench'), ['-i', '-q', '-s', String(scale), ...address(login)], { env: environment(login), signal });
}

export function address({ host, port, user, database }: WireLogin): string[] {
  return ['-h', host, '-p', String(port), '-U', user, database];
}

export function environment({ password }: WireLogin): NodeJS.ProcessEnv {
  return { ...process.env, PGPASSWORD: password, PGSSLMODE: 'disable' };
}

/** The newest that Debian has, without the wrapper in PATH, which takes longer to start than some of what is measured. */
export function findProgram(name: string): string {
  const versions = '/usr/lib/postgresql';
  const found = existsSync(versions) ? readdirSync(versions).sort((a, b) => Number(b) - Number(a)) : [];
  return found.map((version) => join(versions, version, 'bin', name)).find(existsSync) ?? name;
}
