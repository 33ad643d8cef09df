import { serialize } from 'pg-protocol';
import type { BackendConnection } from '../../src/backend/connection.ts';
import { ServiceError } from '../../src/errors.ts';
import { decodeErrorFields, decodeParameterStatus, PostgresError } from '../../src/protocol/backend.ts';
import { backendFrames } from '../../src/protocol/frame.ts';
import { MessageReader } from '../../src/protocol/message-reader.ts';
import type { StartupMessage } from '../../src/protocol/startup.ts';
import { parseOptions } from '../../src/protocol/startup-options.ts';

export type Setting = readonly [name: string, value: string];

const [PARAMETER_STATUS, ERROR_RESPONSE, READY_FOR_QUERY] = [...'SEZ'].map((letter) => letter.charCodeAt(0));
const SET_CONFIG = 'SELECT pg_catalog.set_config($1, $2, false)';
const FRAMES = backendFrames();
const REPLY_MAX_BYTES = 65_536;

/**
 * The settings that a client asked for in its startup packet, in the order in which Postgres applies them: those in
 * `options` first, then the packet's own; and apart from them those that are ours (`postern.…`).
 * @throws ServiceError for what is not a setting
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
 * @throws PostgresError when the server refuses one, ServiceError `backend_lost`
 */
export function applySettings(backend: BackendConnection, settings: readonly Setting[]): Promise<Map<string, string>> {
  const changed = new Map<string, string>();
  if (settings.length === 0) return Promise.resolve(changed);
  return new Promise((resolve, reject) => {
    const reader = new MessageReader(FRAMES, REPLY_MAX_BYTES);
    let failure: Error | undefined;
    const settle = (error: Error | undefined) => {
      backend.detach();
      if (error === undefined) resolve(changed);
      else reject(error);
    };
    backend.attach({
      data(chunk) {
        reader.push(chunk);
        for (let message = reader.next(); message !== undefined; message = reader.next()) {
          if (message.type === ERROR_RESPONSE) failure ??= new PostgresError(decodeErrorFields(message.body));
          if (message.type === READY_FOR_QUERY) settle(failure);
          if (message.type === PARAMETER_STATUS) {
            const { parameter, value } = decodeParameterStatus(message.body);
            changed.set(parameter, value);
          }
        }
      },
      drain() {},
      closed: (error) => settle(new ServiceError('backend_lost', 'the connection to the database server was lost', { cause: error })),
    });
    backend.write(setConfigMessages(settings));
    backend.resume();
  });
}

function setConfigMessages(settings: readonly Setting[]): Buffer {
  const calls = settings.flatMap(([name, value]) => [serialize.bind({ values: [name, value] }), serialize.execute({})]);
  return Buffer.concat([serialize.parse({ text: SET_CONFIG }), ...calls, serialize.sync()]);
}
