import { isIP, isIPv4 } from 'node:net';
import ipaddr from 'ipaddr.js';

type Address = ReturnType<typeof ipaddr.process>;

/** The client's address, by the connection and the X-Forwarded-For header. */
export type ClientAddress = (socketAddress: string, forwardedFor: string | undefined) => string;

/**
 * The client's address. X-Forwarded-For is believed only as far as trusted proxies have written it: from the socket's address
 * backwards, the first address that is not in the list is the client. An entry that is no address ends the search.
 * @param trusted CIDR ranges or single addresses
 */
export function clientAddresses(trusted: readonly string[]): ClientAddress {
  const isTrusted = trustIn(trusted);
  return (socketAddress, forwardedFor) => {
    if (forwardedFor === undefined && isIPv4(socketAddress)) return socketAddress;
    const hops = [socketAddress, ...(forwardedFor ?? '').split(',').reverse()];
    let client: Address | undefined;
    for (const hop of hops) {
      const address = parse(hop.trim());
      if (address === undefined) break;
      client = address;
      if (!isTrusted(address)) break;
    }
    return client?.toString() ?? socketAddress;
  };
}

function trustIn(trusted: readonly string[]): (address: Address) => boolean {
  const ranges = trusted.map((range) => ipaddr.parseCIDR(range.includes('/') ? range : `${range}/${isIP(range) === 6 ? 128 : 32}`));
  return (address) => ranges.some(([network, bits]) => network.kind() === address.kind() && address.match(network, bits));
}

/** Parses an address, also with a port after it, as some proxies write. IPv4-mapped IPv6 becomes IPv4. */
function parse(text: string): Address | undefined {
  const bare = /^\[(.+)\](?::\d+)?$/.exec(text)?.[1] ?? /^([\d.]+):\d+$/.exec(text)?.[1] ?? text;
  return isIP(bare) === 0 ? undefined : ipaddr.process(bare);
}
