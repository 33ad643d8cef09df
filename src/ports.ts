import { once } from 'node:events';
import { createServer, type Server } from 'node:net';
import { inNetworks, parseAddress } from './auth/tokens.ts';
import { type Config, ConfigError } from './config.ts';
import { codeOf } from './protocol/backend.ts';

export const PORT_SETTINGS = ['POSTERN_HTTP_PORT', 'POSTERN_PG_PORT', 'POSTERN_OPS_PORT'] as const;
type PortSetting = (typeof PORT_SETTINGS)[number];

/** Where the address is at fault, whichever the port. */
const ADDRESS_FAULTS: ReadonlyMap<string, string> = new Map([
  ['ENOTFOUND', 'no address is known for this name'],
  ['EAI_AGAIN', 'the name server does not answer'],
  ['EADDRNOTAVAIL', 'this machine does not have this address'],
]);

/**
 * Finds out whether the service can listen, before it does what takes long, such as making a cluster.
 * @returns the ports, with free ones where the settings have 0
 * @throws ConfigError that names the setting
 */
export async function tryPorts(config: Config): Promise<Record<PortSetting, number>> {
  const opened: Server[] = [];
  try {
    // All at the same time, so that two settings with the same port are found too.
    for (const setting of PORT_SETTINGS) opened.push(await listenOn(config, setting, listen));
    const [http = 0, wire = 0, ops = 0] = opened.map(portOf);
    return { POSTERN_HTTP_PORT: http, POSTERN_PG_PORT: wire, POSTERN_OPS_PORT: ops };
  } finally {
    await Promise.all(opened.map(close));
  }
}

export async function isFree(host: string, port: number): Promise<boolean> {
  const server = await listen(host, port).catch(() => undefined);
  if (server === undefined) return false;
  await close(server);
  return true;
}

/**
 * Has a server listen on the host and the port of the settings.
 * @param listen has it listen; its result is returned
 * @throws ConfigError that names the setting
 */
export async function listenOn<Listening>(
  config: Config,
  setting: PortSetting,
  listen: (host: string, port: number) => Promise<Listening>,
): Promise<Listening> {
  const { [setting]: port } = config;
  const [hostSetting, host] = hostOf(config, setting);
  try {
    return await listen(host, port);
  } catch (error) {
    throw cannotListen({ setting, hostSetting }, host, port, error);
  }
}

/** @returns the real port of a server that listens */
export function portOf(server: Pick<Server, 'address'>): number {
  const address = server.address();
  return typeof address === 'object' && address !== null ? address.port : 0;
}

const isLoopbackAddress = inNetworks(['127.0.0.0/8', '::1/128']);

/** Whether only this machine can reach an address. */
export function isLoopback(host: string): boolean {
  const address = parseAddress(host);
  return host === 'localhost' || (address !== undefined && isLoopbackAddress(address));
}

/** What is wrong when keys come over a network in the clear, and no proxy in front takes TLS off; else undefined. */
export function clearTextWarning(config: Config): string | undefined {
  const { POSTERN_HOST: host, POSTERN_TLS_CERT: certificate, POSTERN_TRUST_PROXY, POSTERN_PROXY_PROTOCOL_FROM } = config;
  if (isLoopback(host) || certificate !== undefined) return undefined;
  if (POSTERN_TRUST_PROXY !== undefined || POSTERN_PROXY_PROTOCOL_FROM !== undefined) return undefined;
  return `keys and data cross the network in clear text on ${host}: set POSTERN_TLS_CERT and POSTERN_TLS_KEY`;
}

function hostOf({ POSTERN_HOST, POSTERN_OPS_HOST }: Config, setting: PortSetting): readonly [setting: string, host: string] {
  if (setting === 'POSTERN_OPS_PORT' && POSTERN_OPS_HOST !== undefined) return ['POSTERN_OPS_HOST', POSTERN_OPS_HOST];
  return ['POSTERN_HOST', POSTERN_HOST];
}

/** Names the setting at fault, and what to set. An address that is not this machine's is not the port's fault. */
function cannotListen(
  { setting, hostSetting }: { readonly setting: PortSetting; readonly hostSetting: string },
  host: string,
  port: number,
  error: unknown,
): ConfigError {
  const code = codeOf(error);
  if (code === 'EADDRINUSE') {
    return new ConfigError(`${setting}: port ${port} is taken: set ${setting}=0 for any free port, or another number`);
  }
  if (code === 'EACCES')
    return new ConfigError(`${setting}: port ${port} is for root: set ${setting}=0 for any free port, or 1024 or more`);
  const fault = ADDRESS_FAULTS.get(code);
  if (fault !== undefined) return new ConfigError(`${hostSetting}: cannot listen on ${host}: ${fault}`);
  return new ConfigError(`${setting}: ${error instanceof Error ? error.message : String(error)}`);
}

async function listen(host: string, port: number): Promise<Server> {
  const server = createServer();
  server.listen(port, host);
  await once(server, 'listening');
  return server;
}

async function close(server: Server): Promise<void> {
  server.close();
  await once(server, 'close');
}
