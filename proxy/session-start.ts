import { serialize } from 'pg-protocol';
import type { BackendConnection } from '../src/backend/connection.ts';
import { discardState, readReply } from '../src/backend/own-request.ts';
import type { Settings } from '../src/backend/session-state.ts';
import { ServiceError } from '../src/errors.ts';
import { encodeBackendMessage, PostgresError } from '../src/protocol/backend.ts';
import { parseOptions, type Setting, type StartupMessage } from '../src/protocol/startup.ts';
import type { SchemaRewriter } from '../src/rewriting/rewriter.ts';
import type { Lease } from '../src/router/lease.ts';
import type { BoundedMap } from '../src/runtime/bounded-map.ts';
import { type CustomOptions, optionsAmong, withOptions } from '../src/syntax/session-traits.ts';
import { isAboutTemporaryTables } from './pins.ts';

/** What a client's session starts with. */
export interface SessionStart {
  readonly settings: Settings;
  /** ParameterStatus values as Postgres reports them after login. */
  readonly parameters: ReadonlyMap<string, string>;
  /** AuthenticationOk and these values, as messages. */
  readonly firstMessages: Buffer;
  /** The client has asked for a backend of its own (`postern.pool=session`). */
  readonly wantsOwnBackend: boolean;
}

/** What earlier logins of the organization have found out. */
interface KnownStarts {
  /** By the settings of the session. */
  readonly starts: BoundedMap<string, SessionStart>;
  /** ParameterStatus values after a login, by the settings of the login. */
  readonly parameters: BoundedMap<string, ReadonlyMap<string, string>>;
}

/** @param options the customized options that are going to be set */
type TakeLease = (options: CustomOptions) => Promise<Lease>;

/**
 * Determines the settings and parameters that a session starts with. Known settings need no backend, so a login succeeds even
 * while all backends are busy. Others are tried on a backend, so that an invalid value makes this login fail.
 * @throws PostgresError for a setting that Postgres refuses, ServiceError
 */
export function startSession(
  startup: StartupMessage,
  known: KnownStarts,
  rewriter: SchemaRewriter | undefined,
  lease: TakeLease,
): SessionStart | Promise<SessionStart> {
  const asked = requestedStart(startup, rewriter);
  return known.starts.get(keyOf(asked.settings)) ?? newStart(asked, known, rewriter, lease);
}

async function newStart(
  { settings, wantsOwnBackend }: RequestedStart,
  known: KnownStarts,
  rewriter: SchemaRewriter | undefined,
  lease: TakeLease,
): Promise<SessionStart> {
  const parameters = await parametersOf(settings, known, lease);
  const seen = new Map([...parameters].map(([parameter, value]) => [parameter, rewriter?.clientSetting(parameter, value) ?? value]));
  const start = { settings: byName(settings), parameters: seen, firstMessages: encodeFirstMessages(seen), wantsOwnBackend };
  // Clients with the same settings share one object, so that equal settings are recognized by identity.
  known.starts.set(keyOf(settings), start);
  return start;
}

function keyOf(settings: readonly Setting[]): string {
  return JSON.stringify(settings);
}

/** The settings without application_name, which differs between programs with otherwise equal settings. */
async function parametersOf(settings: readonly Setting[], known: KnownStarts, lease: TakeLease): Promise<ReadonlyMap<string, string>> {
  const name = plainApplicationName(settings);
  const key = keyOf(settings.filter(([setting]) => name === undefined || !isApplicationName(setting)));
  let parameters = known.parameters.get(key);
  if (parameters === undefined) {
    parameters = await tryOnBackend(settings, lease);
    known.parameters.set(key, parameters);
  }
  return name === undefined ? parameters : new Map([...parameters, ['application_name', name]]);
}

function encodeFirstMessages(parameters: ReadonlyMap<string, string>): Buffer {
  const statuses = [...parameters].map(([parameter, value]) => encodeBackendMessage({ name: 'ParameterStatus', parameter, value }));
  return Buffer.concat([encodeBackendMessage({ name: 'AuthenticationOk' }), ...statuses]);
}

interface RequestedStart {
  readonly settings: readonly Setting[];
  readonly wantsOwnBackend: boolean;
}

function requestedStart(startup: StartupMessage, rewriter: SchemaRewriter | undefined): RequestedStart {
  const { settings, own } = startupSettings(startup);
  // In SQL these are settings like any other.
  settings.push(...own);
  for (const [name, value] of own) {
    if (name !== 'postern.pool')
      throw new ServiceError('invalid_request', `unrecognized configuration parameter "${name}"`, { sqlstate: '42704' });
    if (value !== 'session' && value !== 'transaction') {
      throw new ServiceError('invalid_request', `invalid value for parameter "${name}": "${value}"`, {
        hint: 'Available values: transaction, session.',
      });
    }
  }
  return {
    settings: rewriter === undefined ? settings : settings.map(([name, value]) => [name, rewriter.serverSetting(name, value)]),
    wantsOwnBackend: own.some(([, value]) => value === 'session'),
  };
}

async function tryOnBackend(settings: readonly Setting[], takeLease: TakeLease): Promise<ReadonlyMap<string, string>> {
  const options = optionsAmong(settings.map(([name]) => name));
  for (let tried = 0; tried < MAX_TRIED; tried += 1) {
    const parameters = await tryOnOneBackend(settings, options, takeLease);
    if (parameters !== undefined) return parameters;
  }
  throw new ServiceError('internal', 'no backend takes the settings of the session');
}

/** @returns undefined if the backend was not suited, because others have had temporary tables there */
async function tryOnOneBackend(
  settings: readonly Setting[],
  options: CustomOptions,
  takeLease: TakeLease,
): Promise<ReadonlyMap<string, string> | undefined> {
  const lease = await takeLease(options);
  const { backend } = lease;
  backend.session.customOptions = withOptions(backend.session.customOptions, options);
  try {
    await makePristine(backend);
    const changed = await applySettings(backend, settings);
    backend.session.settingsMade(byName(settings));
    const parameters = new Map([...backend.parameters, ...changed]);
    await lease.release(true);
    return parameters;
  } catch (error) {
    const isUnsuited = error instanceof PostgresError && isAboutTemporaryTables(error.fields);
    if (isUnsuited) backend.session.retired = true;
    await lease.release();
    if (isUnsuited) return undefined;
    throw error;
  }
}

/** So many backends may refuse settings because of temporary tables; a new one does not. */
const MAX_TRIED = 20;
const SET_CONFIG = 'SELECT pg_catalog.set_config($1, $2, false)';

/**
 * Applies settings to a session in one round trip.
 * @returns the ParameterStatus values that changed
 * @throws PostgresError when the server rejects a setting, ServiceError `backend_lost`
 */
async function applySettings(backend: BackendConnection, settings: readonly Setting[]): Promise<Map<string, string>> {
  const changed = new Map<string, string>();
  if (settings.length === 0) return changed;
  await readReply(backend, {
    bytes: setConfigMessages(settings),
    parameterStatus: ({ parameter, value }) => changed.set(parameter, value),
  });
  return changed;
}

function setConfigMessages(settings: readonly Setting[]): Buffer {
  const calls = settings.flatMap(([name, value]) => [serialize.bind({ values: [name, value] }), serialize.execute({})]);
  return Buffer.concat([serialize.parse({ text: SET_CONFIG }), ...calls, serialize.sync()]);
}

async function makePristine(backend: BackendConnection): Promise<void> {
  if (backend.session.settings.size === 0 || (await discardState(backend))) return;
  throw new ServiceError('backend_lost', 'the connection to the database server was lost');
}

/** The last value of a setting counts, as in Postgres. */
function byName(settings: readonly Setting[]): Settings {
  return new Map(settings.map(([name, value]) => [name.toLowerCase(), value]));
}

function isApplicationName(setting: string): boolean {
  return setting.toLowerCase() === 'application_name';
}

/** The application_name if Postgres would report it unchanged; otherwise undefined. */
function plainApplicationName(settings: readonly Setting[]): string | undefined {
  const name = settings.findLast(([setting]) => isApplicationName(setting))?.[1] ?? '';
  return /^[\x20-\x7e]{0,63}$/.test(name) ? name : undefined;
}

/**
 * The settings in a client's startup packet, in the order in which Postgres applies them: those in
 * `options` first, then the packet's own; and separately Postern's own settings (`postern.…`).
 * @throws ServiceError for anything that is not a setting
 * @see https://www.postgresql.org/docs/current/libpq-connect.html#LIBPQ-CONNECT-OPTIONS
 */
function startupSettings({ parameters }: StartupMessage): { settings: Setting[]; own: Setting[] } {
  const [settings, own]: [Setting[], Setting[]] = [[], []];
  const take = (setting: Setting) => (isOurs(setting[0]) ? own : settings).push(setting);
  const options = parameters.get('options');
  if (options !== undefined) parseOptions(options).forEach(take);
  for (const setting of parameters) if (!NOT_SETTINGS.has(setting[0])) take(setting);
  return { settings, own };
}

const NOT_SETTINGS = new Set(['user', 'database', 'options', 'replication']);

function isOurs(name: string): boolean {
  return name.startsWith('postern.');
}
