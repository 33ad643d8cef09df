import type { Config } from './config.ts';
import type { Service } from './service.ts';

export type Ports = Pick<Service, 'httpPort' | 'wirePort'>;

/** The lines that name both doors. */
export function doorsOf(config: Config, ports: Ports): string {
  const url = httpUrl(config, ports);
  const console = config.POSTERN_CONSOLE === 'on' ? `, console: ${url}/console` : '';
  return `  HTTP  ${url}   (docs: ${url}/docs${console})\n  wire  postgres://${addressOf(config).at}:${ports.wirePort}\n`;
}

export function httpUrl(config: Config, { httpPort }: Ports): string {
  const scheme = config.POSTERN_TLS_CERT === undefined ? 'http' : 'https';
  return `${scheme}://${addressOf(config).at}:${httpPort}`;
}

/** What drivers take, with the key in it. */
export function databaseUrl(config: Config, { wirePort }: Ports, { id, apiKey }: { readonly id: string; readonly apiKey: string }): string {
  const tls = config.POSTERN_TLS_CERT === undefined || config.POSTERN_TLS === 'off' ? '' : '?sslmode=require';
  return `postgres://${id}:${apiKey}@${addressOf(config).at}:${wirePort}/${id}${tls}`;
}

/** Where clients on this machine connect to. Nobody can connect to an unspecified address such as 0.0.0.0. */
export function addressOf(config: Config): { readonly host: string; readonly at: string } {
  const host = config.POSTERN_HOST === '0.0.0.0' || config.POSTERN_HOST === '::' ? '127.0.0.1' : config.POSTERN_HOST;
  return { host, at: host.includes(':') ? `[${host}]` : host };
}
