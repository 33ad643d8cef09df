import { readFileSync } from 'node:fs';
import { isIP } from 'node:net';
import { availableParallelism } from 'node:os';
import { resolve } from 'node:path';
import * as z from 'zod';
import { nearest } from './runtime/nearest-word.ts';

/** All settings, read once at the start; operators change some of them later: {@link RunningConfig}. Only this file reads `process.env`. */
export type Config = Readonly<z.output<typeof schema>>;

/** A setting is invalid; the message is one line that names the variable. */
export class ConfigError extends Error {
  override readonly name = 'ConfigError';
}

const whole = (fallback: number, min: number, max: number) =>
  z
    .string()
    .refine((text) => isWhole(text, min, max), `must be a whole number from ${min} to ${max}`)
    .transform(Number)
    .default(fallback);

const oneOf = <const Words extends readonly string[]>(words: Words) =>
  z.enum(words, {
    error: ({ input }) => `must be one of ${words.join(', ')}${didYouMean(String(input), words)}`,
  });

/** The words that PostgreSQL takes for a boolean. @see https://www.postgresql.org/docs/current/datatype-boolean.html */
const BOOLEANS: Readonly<Record<string, 'on' | 'off'>> = {
  on: 'on',
  true: 'on',
  yes: 'on',
  1: 'on',
  off: 'off',
  false: 'off',
  no: 'off',
  0: 'off',
};

const onOrOff = (fallback: 'on' | 'off') =>
  z
    .string()
    .transform((text) => BOOLEANS[text.toLowerCase()] ?? text)
    .pipe(oneOf(['on', 'off']))
    .default(fallback);

const port = (fallback: number) => whole(fallback, 0, 65_535);
const milliseconds = (fallback: number) => whole(fallback, 0, 2_147_483_647);
const deadline = (fallback: number) => whole(fallback, 1, 2_147_483_647);

const host = z.string().refine(isHost, 'must be a host name or an IP address, without scheme, port or brackets');

const WORKERS_MAX = 256;

const bytes = whole(0, 0, Number.MAX_SAFE_INTEGER);

const cidrList = z
  .string()
  .transform((text) => text.split(',').map((part) => part.trim()))
  .pipe(z.array(z.string().refine(isCidr, 'must be a comma-separated list of CIDR ranges')))
  .optional();

const originList = z
  .string()
  .transform((text) => text.split(',').map((part) => part.trim()))
  .pipe(z.array(z.string().refine(isOrigin, 'must be * or a comma-separated list of origins such as https://app.example')))
  .refine((list) => list.length === 1 || !list.includes('*'), 'must be * alone, or a list without it')
  .optional();

const schema = z.object({
  DATABASE_URL: z
    .string()
    .regex(/^postgres(ql)?:\/\//, 'must be a postgres:// URL')
    .refine((url) => !isOfAnOrganization(url), 'is for clients of Postern: unset it, or set that of the PostgreSQL behind it')
    .optional(),
  POSTERN_DATA_DIR: z
    .string()
    .default('./data')
    .transform((path) => resolve(path)),
  POSTERN_POSTGRES_BIN: z
    .string()
    .transform((path) => resolve(path))
    .describe('A folder with postgres and initdb, in place of those from npm')
    .optional(),
  POSTERN_BACKUP_DIR: z
    .string()
    .transform((path) => resolve(path))
    .optional(),
  POSTERN_BACKUP_HOURS: whole(24, 1, 8_760).describe('From one base backup to the next'),
  POSTERN_BACKUP_KEEP_DAYS: whole(7, 1, 3_650),
  POSTERN_BACKUP_WAL_MAX_BYTES: whole(10 * 1_024 ** 3, 64 * 1_024 ** 2, Number.MAX_SAFE_INTEGER).describe(
    'How much WAL the server keeps for a backup folder that takes none',
  ),
  POSTERN_BACKUP_VERIFY_HOURS: whole(168, 0, 8_760).describe('From one trial restore to the next; 0: none'),
  POSTERN_SECRET: z.string().min(16, 'must have at least 16 characters').optional(),
  POSTERN_HOST: host.default('127.0.0.1'),
  /** As {@link POSTERN_HOST}; undefined: the same. */
  POSTERN_OPS_HOST: host.optional(),
  POSTERN_HTTP_PORT: port(8080),
  POSTERN_PG_PORT: port(6432),
  POSTERN_OPS_PORT: port(9464),
  /** The host in connection strings, if it differs from the address that the service listens on. */
  POSTERN_PUBLIC_HOST: host.optional(),
  POSTERN_PLACEMENT: oneOf(['database', 'schema']).default('database'),
  POSTERN_ALLOW_XPATH: onOrOff('off'),
  POSTERN_QUERY_STATISTICS: onOrOff('off'),
  POSTERN_CONTROL_DATABASE: z
    .string()
    .regex(/^[a-z_][a-z0-9_]{0,50}$/, 'must be a plain lower-case name')
    .default('postern_control'),
  POSTERN_TLS_CERT: z.string().optional(),
  POSTERN_TLS_KEY: z.string().optional(),
  POSTERN_TLS: oneOf(['off', 'prefer', 'require']).default('prefer'),
  POSTERN_TRUST_PROXY: cidrList,
  POSTERN_PROXY_PROTOCOL_FROM: cidrList,
  POSTERN_OPERATOR_KEY: z.string().min(16, 'must have at least 16 characters').optional(),
  POSTERN_OPERATOR_NETWORKS: cidrList,
  POSTERN_CORS_ORIGINS: originList,
  POSTERN_CONSOLE: onOrOff('on'),
  POSTERN_SIGNUP: oneOf(['open', 'invite', 'closed']).default('open'),
  POSTERN_SIGNUPS_PER_HOUR: whole(5, 0, 1_000_000),
  POSTERN_REFUSALS_PER_MINUTE: whole(600, 1, 1_000_000),
  POSTERN_BACKENDS_MAX: whole(0, 0, 100_000).describe('0: from max_connections'),
  POSTERN_BACKENDS_PER_TENANT: whole(16, 1, 10_000),
  POSTERN_WORKERS: z
    .string()
    .refine((text) => text === 'auto' || isWhole(text, 1, WORKERS_MAX), `must be auto, or a whole number from 1 to ${WORKERS_MAX}`)
    .default('1')
    .transform((text) => (text === 'auto' ? Math.min(availableParallelism(), WORKERS_MAX) : Number(text)))
    .describe('Processes that share the ports; auto: one for each processor'),
  POSTERN_PIPELINE_DEPTH: whole(8, 1, 64).describe(
    'How many short reads of several clients may be in one backend session at once; 1: no sharing',
  ),
  POSTERN_PIPELINE_SPREAD: whole(0, 0, 10_000).describe(
    "From this many busy sessions on, an organization's quickest reads share them; 0: the number of processors less one",
  ),
  POSTERN_BUSY_POLL_US: whole(300, 0, 10_000).describe('How long to poll for input that arrived soon the last time; 0: not at all'),
  POSTERN_CLIENTS_MAX: whole(10_000, 1, 1_000_000),
  POSTERN_CLIENTS_PER_TENANT: whole(1_000, 1, 1_000_000),
  POSTERN_DISK_PER_TENANT_BYTES: bytes.describe('How large the data of an organization may be; 0: any size'),
  POSTERN_STATEMENT_TIMEOUT_MS: milliseconds(30_000).describe('Over HTTP, if the request sets none'),
  POSTERN_STATEMENT_TIMEOUT_MAX_MS: whole(300_000, 1, 300_000).describe('The longest timeout that a request over HTTP may set'),
  POSTERN_HTTP_CONNECTIONS_MAX: whole(10_000, 1, 1_000_000),
  POSTERN_HTTP_HEADERS_TIMEOUT_MS: deadline(15_000),
  POSTERN_HTTP_REQUEST_TIMEOUT_MS: deadline(120_000).describe('From the first byte of a request to the last byte of its body'),
  POSTERN_HTTP_KEEP_ALIVE_TIMEOUT_MS: deadline(72_000),
  POSTERN_HTTP_SEND_TIMEOUT_MS: deadline(60_000).describe('How long a client may read nothing of a reply'),
  POSTERN_HTTP_BODY_MAX_BYTES: whole(16 * 1_024 * 1_024, 1_024, 256 * 1_024 * 1_024),
  POSTERN_HTTP_REQUESTS_PER_TENANT: whole(256, 1, 1_000_000).describe(
    'Requests in progress at once, including those that wait for a session',
  ),
  POSTERN_HTTP_BODIES_PER_TENANT_BYTES: bytes.describe('Bodies of requests in progress, together; 0: four times the largest body'),
  POSTERN_HTTP_BODIES_BYTES: bytes.describe('Bodies of all organizations together; 0: sixteen times the largest body'),
  POSTERN_WIRE_STATEMENT_TIMEOUT_MS: milliseconds(0),
  POSTERN_IDLE_IN_TRANSACTION_TIMEOUT_MS: milliseconds(300_000),
  POSTERN_QUEUE_TIMEOUT_MS: deadline(10_000),
  POSTERN_BACKEND_IDLE_MS: milliseconds(60_000),
  POSTERN_LOGIN_TIMEOUT_MS: deadline(15_000),
  POSTERN_DRAIN_MS: milliseconds(0).describe('How long a stop is announced before the doors close'),
  POSTERN_SHUTDOWN_TIMEOUT_MS: milliseconds(10_000),
  POSTERN_REPLACE_TIMEOUT_MS: milliseconds(3_600_000).describe('How long a worker that has been replaced waits for its clients to leave'),
  POSTERN_AUDIT_DAYS: whole(90, 1, 36_500),
  POSTERN_SLOW_STATEMENT_MS: milliseconds(0),
  POSTERN_METRICS_TOP: whole(0, 0, 200),
  POSTERN_LOG_LEVEL: oneOf(['fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent']).default('info'),
});

/** The names of all settings. */
export const SETTING_NAMES = Object.keys(schema.shape) as readonly (keyof Config)[];

/** Settings that hold a secret, which may be in a file: its path is in the variable of this name with `_FILE`. */
const IN_FILES = ['DATABASE_URL', 'POSTERN_SECRET'] as const;
/** What hosts for applications set to the port that they lead requests to. */
const USUAL_PORT = 'PORT';

/**
 * @param environment usually `process.env`; an empty value counts as unset
 * @throws ConfigError naming the first variable with a bad value
 */
export function readConfig(environment: Readonly<Record<string, string | undefined>>): Config {
  const set = Object.fromEntries(Object.entries(environment).filter(([, value]) => value !== undefined && value !== ''));
  for (const name of IN_FILES) {
    const path = set[`${name}_FILE`];
    if (path === undefined) continue;
    if (set[name] !== undefined) throw new ConfigError(`${name}_FILE: is set beside ${name}: unset one of them`);
    const text = contentsOf(path)?.trim();
    if (!text) throw new ConfigError(`${name}_FILE: ${path} is empty or cannot be read`);
    set[name] = text;
  }
  if (set.POSTERN_HTTP_PORT === undefined && set[USUAL_PORT] !== undefined) {
    if (!isWhole(set[USUAL_PORT], 0, 65_535)) throw new ConfigError(`${USUAL_PORT}: must be a whole number from 0 to 65535`);
    set.POSTERN_HTTP_PORT = set[USUAL_PORT];
  }
  const parsed = schema.safeParse(set);
  if (!parsed.success) {
    const issue = parsed.error.issues[0];
    throw new ConfigError(`${String(issue?.path[0] ?? 'configuration')}: ${issue?.message ?? 'is not valid'}`);
  }
  const config = parsed.data;
  if ((config.POSTERN_TLS_CERT === undefined) !== (config.POSTERN_TLS_KEY === undefined)) {
    throw new ConfigError('POSTERN_TLS_CERT: set it together with POSTERN_TLS_KEY, or neither');
  }
  if (config.POSTERN_TLS === 'require' && config.POSTERN_TLS_CERT === undefined) {
    throw new ConfigError('POSTERN_TLS: require needs POSTERN_TLS_CERT and POSTERN_TLS_KEY');
  }
  if (config.DATABASE_URL !== undefined && config.POSTERN_SECRET === undefined) {
    throw new ConfigError('POSTERN_SECRET: is required with DATABASE_URL: set it to the output of `openssl rand -hex 32`, and keep it');
  }
  if (config.POSTERN_BACKUP_DIR !== undefined) {
    if (config.DATABASE_URL !== undefined) {
      throw new ConfigError(
        'POSTERN_BACKUP_DIR: is for the embedded server: unset it, and back up the one in DATABASE_URL with its own tools',
      );
    }
    if (`${config.POSTERN_BACKUP_DIR}/`.startsWith(`${config.POSTERN_DATA_DIR}/`)) {
      throw new ConfigError('POSTERN_BACKUP_DIR: must not be in POSTERN_DATA_DIR, with which it would be lost');
    }
  }
  return Object.freeze(config);
}

/** The settings that may change while the service runs: who follows one reads it each time, or is told. */
const CHANGEABLE = [
  'POSTERN_SIGNUP',
  'POSTERN_SIGNUPS_PER_HOUR',
  'POSTERN_REFUSALS_PER_MINUTE',
  'POSTERN_STATEMENT_TIMEOUT_MS',
  'POSTERN_STATEMENT_TIMEOUT_MAX_MS',
  'POSTERN_WIRE_STATEMENT_TIMEOUT_MS',
  'POSTERN_IDLE_IN_TRANSACTION_TIMEOUT_MS',
  'POSTERN_QUEUE_TIMEOUT_MS',
  'POSTERN_BACKEND_IDLE_MS',
  'POSTERN_LOGIN_TIMEOUT_MS',
  'POSTERN_DRAIN_MS',
  'POSTERN_SHUTDOWN_TIMEOUT_MS',
  'POSTERN_REPLACE_TIMEOUT_MS',
  'POSTERN_SLOW_STATEMENT_MS',
] as const satisfies readonly (keyof Config)[];

export type ChangeableSetting = (typeof CHANGEABLE)[number];

export function isChangeable(name: string): name is ChangeableSetting {
  return CHANGEABLE.some((setting) => setting === name);
}

/** @throws ConfigError with what the value must be, without the name */
export function parseSetting(name: ChangeableSetting, text: string): string | number {
  const { success, data, error } = schema.shape[name].safeParse(text);
  if (success) return data;
  throw new ConfigError(error.issues[0]?.message ?? 'is not valid');
}

/** The settings of a service that runs. */
export class RunningConfig {
  /** As they are now: those that are {@link isChangeable} may be others the next time they are read. */
  readonly config: Config;
  /** As the service was started with. */
  readonly initial: Config;
  readonly #values: Record<string, unknown>;

  constructor(initial: Config) {
    this.initial = initial;
    this.#values = { ...initial };
    this.config = this.#values as Config;
  }

  /** @param text as in the environment @throws ConfigError */
  change(name: ChangeableSetting, text: string): void {
    this.#values[name] = parseSetting(name, text);
  }
}

const SECRET_MAX_BYTES = 16_384;

/** Whether this names the place of a secret: `env:NAME` or `file:/path`. */
export function isSecretSource(source: string): boolean {
  return /^(?:env:[A-Za-z_][A-Za-z0-9_]*|file:\/.+)$/.test(source);
}

/**
 * A secret that the operator keeps in a variable or a file. A file is read anew each time.
 * @param source as in {@link isSecretSource}
 * @throws ConfigError
 */
export function readSecret(source: string, environment: Readonly<Record<string, string | undefined>> = process.env): string {
  if (!isSecretSource(source)) throw new ConfigError('a secret is named by env:NAME or file:/path');
  const place = source.slice(source.indexOf(':') + 1);
  const secret = (source.startsWith('env:') ? environment[place] : contentsOf(place))?.trim();
  if (!secret) throw new ConfigError(`${source} is ${source.startsWith('env:') ? 'not set in this process' : 'empty or cannot be read'}`);
  return secret;
}

function contentsOf(path: string): string | undefined {
  try {
    return readFileSync(path).subarray(0, SECRET_MAX_BYTES).toString();
  } catch {
    return undefined;
  }
}

/** What is set under a name like those of the settings but is none, and which setting it resembles: misspelt, mostly. */
export function unknownVariables(environment: Readonly<Record<string, string | undefined>>): string[] {
  const known: readonly string[] = [...SETTING_NAMES, ...IN_FILES.map((name) => `${name}_FILE`)];
  const isSet = (name: string) => environment[name] !== undefined && environment[name] !== '';
  const unknown = Object.keys(environment).filter((name) => name.startsWith('POSTERN_') && isSet(name) && !known.includes(name));
  return unknown.map((name) => `${name}${didYouMean(name, known)}`);
}

/** ` (did you mean x?)` if a word is much like one of these; else nothing. */
function didYouMean(text: string, words: readonly string[]): string {
  const meant = nearest(text, words);
  return meant === undefined ? '' : ` (did you mean ${meant}?)`;
}

/** Whether its password is an API key: what a client of Postern connects with. */
export function isOfAnOrganization(url: string): boolean {
  return /^postgres(ql)?:\/\/[^:@/]*:pst_/.test(url);
}

/** Whether this is a host name or an IP address, without a port or brackets. */
export function isHost(text: string): boolean {
  return isIP(text) !== 0 || /^[a-z0-9_]([a-z0-9._-]*[a-z0-9.])?$/i.test(text);
}

function isWhole(text: string, min: number, max: number): boolean {
  return /^\d+$/.test(text) && Number(text) >= min && Number(text) <= max;
}

/** As browsers write it in the header Origin: with no path, and no port where it is the usual one. */
function isOrigin(text: string): boolean {
  return text === '*' || (/^https?:\/\//.test(text) && URL.canParse(text) && new URL(text).origin === text);
}

function isCidr(text: string): boolean {
  const [address = '', bits, ...rest] = text.split('/');
  const family = isIP(address);
  if (family === 0 || rest.length > 0) return false;
  return bits === undefined || (/^\d{1,3}$/.test(bits) && Number(bits) <= (family === 4 ? 32 : 128));
}
