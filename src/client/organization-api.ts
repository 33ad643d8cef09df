import { readFile } from 'node:fs/promises';
import { hasCode } from '../system-errors.ts';

/** A file of variables for shells and for what reads such files, such as `node --env-file`. */
export const ENV_FILE = '.env.postern';

/** A command cannot be carried out: the message is for a person, in one line or more. */
export class CommandError extends Error {}

/** The reply to a failed request: Problem Details (RFC 9457), as http/README.md describes them. */
export interface Problem {
  readonly message: string;
  readonly code?: string;
  readonly sqlstate?: string;
  readonly detail?: string;
  readonly hint?: string;
  /** Where the statement begins, where the error is none of Postgres: from 1. */
  readonly line?: number;
  readonly postgres?: { readonly line?: number };
}

/** The HTTP door of the organization whose key is used. */
export interface OrganizationApi {
  readonly url: string;
  /**
   * @param body sent as JSON, if there is one
   * @returns the reply's JSON, and whether it is that of success
   * @throws CommandError when the service does not answer, or answers with what is no JSON
   */
  call(method: 'GET' | 'POST', path: string, body?: object): Promise<{ readonly ok: boolean; readonly body: unknown }>;
}

/**
 * The service and the key that API_URL and API_KEY name, in the environment or else in `.env.postern` of the current folder.
 * @throws CommandError when they are not there
 */
export async function findOrganization(environment: Readonly<Record<string, string | undefined>>): Promise<OrganizationApi> {
  const given = { API_URL: environment.API_URL, API_KEY: environment.API_KEY };
  const { API_URL: url, API_KEY: key } = given.API_URL && given.API_KEY ? given : { ...(await readEnvFile()), ...defined(given) };
  const missing = [url ? [] : ['API_URL'], key ? [] : ['API_KEY']].flat();
  if (!url || !key) throw new CommandError(`${missing.join(' and ')} must be set, in the environment or in ${ENV_FILE}`);
  if (!URL.canParse(url)) throw new CommandError('API_URL is no URL: it is that of the HTTP door, such as http://127.0.0.1:8080');
  const base = url.replace(/\/+$/, '');
  return { url: base, call: (method, path, body) => call(new URL(`${base}${path}`), key, method, body) };
}

async function call(url: URL, key: string, method: string, body: object | undefined): Promise<{ ok: boolean; body: unknown }> {
  const headers = { authorization: `Bearer ${key}`, ...(body === undefined ? {} : { 'content-type': 'application/json' }) };
  const request = { method, headers, ...(body === undefined ? {} : { body: JSON.stringify(body) }) };
  const reply = await fetch(url, request).catch((error: Error & { cause?: Error }) => {
    throw new CommandError(`${url.origin} does not answer: ${error.cause?.message || error.message}`);
  });
  const parsed: unknown = await reply.json().catch(() => {
    throw new CommandError(
      `${url.origin} answered ${method} ${url.pathname} with status ${reply.status} and no JSON: is it Postern's HTTP door?`,
    );
  });
  return { ok: reply.ok, body: parsed };
}

/** @returns the variables, none where there is no such file */
async function readEnvFile(): Promise<Readonly<Record<string, string>>> {
  const text = await readFile(ENV_FILE, 'utf8').catch((error: unknown) => {
    if (hasCode(error, 'ENOENT')) return '';
    throw new CommandError(`${ENV_FILE} cannot be read: ${error instanceof Error ? error.message : error}`);
  });
  return variablesIn(text);
}

/** Of the lines `NAME=value`. */
export function variablesIn(text: string): Readonly<Record<string, string>> {
  return Object.fromEntries([...text.matchAll(/^(\w+)=(.*)$/gm)].map(([, name = '', value = '']) => [name, value]));
}

function defined(variables: Readonly<Record<string, string | undefined>>): Readonly<Record<string, string>> {
  return Object.fromEntries(Object.entries(variables).flatMap(([name, value]) => (value ? [[name, value] as const] : [])));
}

/** @returns where in the SQL it failed, from 1 */
export function lineOf({ line, postgres }: Problem): number | undefined {
  return postgres?.line ?? line;
}

/** A failure as a person reads it: what, where and what to do. */
export function describeProblem(problem: Problem): string {
  const { message, sqlstate, detail, hint } = problem;
  const lines = [`${message}${sqlstate === undefined ? '' : ` (${sqlstate})`}`];
  if (detail !== undefined && detail !== message) lines.push(`  ${detail}`);
  if (hint !== undefined) lines.push(`  hint: ${hint}`);
  return lines.join('\n');
}
