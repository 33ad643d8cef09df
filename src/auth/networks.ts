import { isIP } from 'node:net';
import ipaddr from 'ipaddr.js';

export type IpAddress = ReturnType<typeof ipaddr.process>;

/** Whether an address is in one of some networks. */
export type InNetworks = (address: IpAddress) => boolean;

/** @param networks CIDR ranges or single addresses, each as {@link normalNetwork} accepts them */
export function inNetworks(networks: readonly string[]): InNetworks {
  const ranges = networks.map((network) => ipaddr.parseCIDR(withPrefixLength(network)));
  return (address) => ranges.some(([network, bits]) => network.kind() === address.kind() && address.match(network, bits));
}

/** @returns undefined for a text that is no address, such as the path of a Unix socket; IPv4-mapped IPv6 becomes IPv4 */
export function parseAddress(text: string): IpAddress | undefined {
  return isIP(text) === 0 ? undefined : ipaddr.process(text);
}

/** What counts as one address: an IPv4 address, even if written as IPv6; for IPv6 the /64, which usually belongs to one client. */
export function rateLimitAddress(sourceIp: string): string {
  if (isIP(sourceIp) === 4 || !ipaddr.isValid(sourceIp)) return sourceIp;
  const address = ipaddr.process(sourceIp);
  if (!(address instanceof ipaddr.IPv6)) return address.toString();
  return `${new ipaddr.IPv6([...address.parts.slice(0, 4), 0, 0, 0, 0]).toString()}/64`;
}

/** @returns the network with its prefix length and without host bits, e.g. `10.0.0.0/8`; undefined if it is none */
export function normalNetwork(text: string): string | undefined {
  const [, address = '', bits] = /^([^/]+)(?:\/(\d{1,3}))?$/.exec(text) ?? [];
  const version = isIP(address);
  // A zone names an interface of one machine.
  if (version === 0 || address.includes('%') || Number(bits ?? 0) > (version === 6 ? 128 : 32)) return undefined;
  return version === 6 ? networkOfIPv6(withPrefixLength(text)) : networkOfIPv4(withPrefixLength(text));
}

/** Clients with such an address are known by their IPv4 address. */
const MAPPED_BITS = 96;

function networkOfIPv6(network: string): string {
  const [address, bits] = ipaddr.IPv6.parseCIDR(network);
  if (address.isIPv4MappedAddress() && bits >= MAPPED_BITS) return networkOfIPv4(`${address.toIPv4Address()}/${bits - MAPPED_BITS}`);
  return `${ipaddr.IPv6.networkAddressFromCIDR(network)}/${bits}`;
}

function networkOfIPv4(network: string): string {
  return `${ipaddr.IPv4.networkAddressFromCIDR(network)}/${ipaddr.IPv4.parseCIDR(network)[1]}`;
}

function withPrefixLength(network: string): string {
  return network.includes('/') ? network : `${network}/${isIP(network) === 6 ? 128 : 32}`;
}
