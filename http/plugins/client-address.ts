import { isIPv4 } from 'node:net';
import { type IpAddress, inNetworks, parseAddress } from '../../src/auth/tokens.ts';

/** The client's address, by the connection and the X-Forwarded-For header. */
export type ClientAddress = (socketAddress: string, forwardedFor: string | undefined) => string;

/**
 * The client's address. X-Forwarded-For is believed only as far as trusted proxies have written it: from the socket's address
 * backwards, the first address that is not in the list is the client. An entry that is no address ends the search.
 * @param trusted CIDR ranges or single addresses
 */
export function clientAddresses(trusted: readonly string[]): ClientAddress {
  const isTrusted = inNetworks(trusted);
  return (socketAddress, forwardedFor) => {
    if (forwardedFor === undefined && isIPv4(socketAddress)) return socketAddress;
    const hops = [socketAddress, ...(forwardedFor ?? '').split(',').reverse()];
    let client: IpAddress | undefined;
    for (const hop of hops) {
      const address = parse(hop.trim());
      if (address === undefined) break;
      client = address;
      if (!isTrusted(address)) break;
    }
    return client?.toString() ?? socketAddress;
  };
}

/** Parses an address, also with a port after it, as some proxies write. IPv4-mapped IPv6 becomes IPv4. */
function parse(text: string): IpAddress | undefined {
  const bare = /^\[(.+)\](?::\d+)?$/.exec(text)?.[1] ?? /^([\d.]+):\d+$/.exec(text)?.[1] ?? text;
  return parseAddress(bare);
}
