import { createHash } from 'node:crypto';

/** NAMEDATALEN - 1: what LISTEN cuts names to, in bytes. */
const CHANNEL_MAX_BYTES = 63;

/** What stands before the names of an organization's channels. `:` is in no other name that Postern makes. */
export const channelPrefix = (channels: string): string => `${channels}:`;

/**
 * Name that a client's channel has on the server: the organization, a colon, the name. One that would not fit is
 * represented by its digest; {@link clientChannel} then has to be told the client's name for it.
 */
export function serverChannel(name: string, channels: string): string {
  const prefix = channelPrefix(channels);
  const fits = prefix.length + Buffer.byteLength(name) <= CHANNEL_MAX_BYTES;
  return fits ? prefix + name : `${prefix}~${createHash('sha256').update(name).digest('base64url')}`;
}

/** A name cut as the server cuts identifiers: to 63 bytes, between characters. */
export function truncateChannel(name: string): string {
  const bytes = Buffer.from(name);
  if (bytes.length <= CHANNEL_MAX_BYTES) return name;
  let end = CHANNEL_MAX_BYTES;
  while (((bytes[end] ?? 0) & 0xc0) === 0x80) end--;
  return bytes.toString('utf8', 0, end);
}

/**
 * The client's name for a channel of a notification, or undefined when the channel is not this organization's: that
 * notification must never reach the client, whatever SQL produced it.
 * @param longNames server's name → client's, for the session's channels whose names did not fit ({@link serverChannel})
 */
export function clientChannel(name: string, channels: string, longNames?: Pick<ReadonlyMap<string, string>, 'get'>): string | undefined {
  const prefix = channelPrefix(channels);
  return name.startsWith(prefix) ? (longNames?.get(name) ?? name.slice(prefix.length)) : undefined;
}
