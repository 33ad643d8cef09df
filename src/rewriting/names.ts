import { createHash } from 'node:crypto';

/** NAMEDATALEN - 1: LISTEN truncates longer names to this many bytes. */
export const CHANNEL_MAX_BYTES = 63;

/** The prefix of an organization's channels. No other name that Postern makes contains `:`. */
export const channelPrefix = (channels: string): string => `${channels}:`;

/**
 * The name that a client's channel has on the server: the prefix and the client's name. If that is too long, the digest of the
 * client's name replaces it; {@link clientChannel} then needs `longNames`.
 */
export function serverChannel(name: string, channels: string): string {
  const prefix = channelPrefix(channels);
  const fits = prefix.length + Buffer.byteLength(name) <= CHANNEL_MAX_BYTES;
  return fits ? prefix + name : `${prefix}~${createHash('sha256').update(name).digest('base64url')}`;
}

/** Truncates a name as the server truncates identifiers: to 63 bytes, between characters. */
export function truncateChannel(name: string): string {
  const bytes = Buffer.from(name);
  if (bytes.length <= CHANNEL_MAX_BYTES) return name;
  let end = CHANNEL_MAX_BYTES;
  while (((bytes[end] ?? 0) & 0xc0) === 0x80) end--;
  return bytes.toString('utf8', 0, end);
}

/**
 * The client's name for the channel of a notification; undefined if the channel is not this organization's. Such a notification
 * must never reach the client.
 * @param longNames server's name → client's, for the session's channels whose names did not fit ({@link serverChannel})
 */
export function clientChannel(name: string, channels: string, longNames?: Pick<ReadonlyMap<string, string>, 'get'>): string | undefined {
  const prefix = channelPrefix(channels);
  return name.startsWith(prefix) ? (longNames?.get(name) ?? name.slice(prefix.length)) : undefined;
}

/** An item in a setting's list of identifiers: a quoted identifier, or what ends at a comma or white space. */
const ITEM = /"((?:[^"]|"")*)"|"[^"]*$|[^\s,"]+/g;

/**
 * The ranges of a search_path's value in which an item names `schema`, from left to right.
 * @see https://github.com/postgres/postgres/blob/master/src/backend/utils/adt/varlena.c SplitIdentifierString
 */
export function schemasNamed(value: string, schema: string): [start: number, end: number][] {
  const ranges: [number, number][] = [];
  for (const { 0: item, 1: quoted, index } of value.matchAll(ITEM)) {
    if (quoted === schema) ranges.push([index + 1, index + 1 + schema.length]);
    else if (quoted === undefined && item.toLowerCase() === schema) ranges.push([index, index + item.length]);
  }
  return ranges;
}

function renamed(value: string, from: string, to: string): string {
  let text = '';
  let at = 0;
  for (const [start, end] of schemasNamed(value, from)) {
    text += value.slice(at, start) + to;
    at = end;
  }
  return text + value.slice(at);
}

/** The search_path to send to the server for one from a client's StartupMessage or its `options`. */
export function serverSearchPath(clientValue: string, schema: string): string {
  return renamed(clientValue, 'public', schema);
}

/**
 * The search_path to show to a client, in ParameterStatus (since PostgreSQL 18) and in the row of SHOW search_path. The client
 * reads `public` even if it has set the organization's schema by its real name.
 */
export function clientSearchPath(serverValue: string, schema: string): string {
  return renamed(serverValue, schema, 'public');
}

/** The schema for which an organization's `public` stands. */
export interface SchemaTarget {
  /** Name of the schema: `org_` and 12 characters of `[a-z0-9]`. It needs no quotes. */
  readonly schema: string;
  /** Prefix of the organization's channels: `[a-z0-9_]`, no longer than the schema's name. Default: that name, which others can guess. */
  readonly channels?: string;
  /** Function to call in place of pg_notify. Default: pg_notify itself, if the platform's own one adds the prefix. */
  readonly pgNotify?: string | undefined;
  /** Whether the server lets transactions be prepared; then the statement is refused. Default: not. */
  readonly hasPreparedTransactions?: boolean | undefined;
  /** Name of the schema's database. Clients use the organization's name for it: `org_….public.users`. */
  readonly database?: string;
}
