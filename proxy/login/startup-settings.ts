import { parseOptions, type Setting, type StartupMessage } from '../../src/protocol/startup.ts';

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
