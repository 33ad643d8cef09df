import { serialize } from 'pg-protocol';
import type { BackendConnection } from '../../src/backend/connection.ts';
import { readReply } from '../../src/backend/own-request.ts';
import type { StartupMessage } from '../../src/protocol/startup.ts';
import { parseOptions } from '../../src/protocol/startup-options.ts';

export type Setting = readonly [name: string, value: string];

const SET_CONFIG = 'SELECT pg_catalog.set_config($1, $2, false)';

/**
 * The settings in a client's startup packet, in the order in which Postgres applies them: those in
 * `options` first, then the packet's own; and separately Postern's own settings (`postern.…`).
 * @throws ServiceError for anything that is not a setting
 * @see https://www.postgresql.org/docs/current/libpq-connect.html#LIBPQ-CONNECT-OPTIONS
 */
export function startupSettings({ parameters }: StartupMessage): { settings: Setting[]; own: Setting[] } {
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

/**
 * Applies settings to a session in one round trip.
 * @returns the ParameterStatus values that changed
 * @throws PostgresError when the server rejects a setting, ServiceError `backend_lost`
 */
export async function applySettings(backend: BackendConnection, settings: readonly Setting[]): Promise<Map<string, string>> {
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
