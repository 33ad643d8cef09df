import { isIP, isIPv4 } from 'node:net';
import ipaddr from 'ipaddr.js';

type Address = ReturnType<typeof ipaddr.process>;

/** Where a request comes from, by its connection and what it says itself. */
export type ClientAddress = (socketAddress: string, forwardedFor: string | undefined) => string;

/**
 * Where a request comes from. X-Forwarded-For is believed only as far as the hops that wrote it are trusted: from the
 * socket backwards, the first address that is not in the list is the client. Entries that are no addresses end the walk.
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

/** An address, also with a port behind it as some proxies write; IPv4 inside IPv6 becomes IPv4. */
function parse(text: string): Address | undefined {
  const bare = /^\[(.+)\](?::\d+)?$/.exec(text)?.[1] ?? /^([\d.]+):\d+$/.exec(text)?.[1] ?? text;
  return isIP(bare) === 0 ? undefined : ipaddr.process(bare);
}
