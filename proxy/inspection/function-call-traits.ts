import { type FrameScanner, HEADER_BYTES } from '../../src/protocol/framing.ts';
import { NO_TRAITS, type SessionTraits, sessionTraitsOf } from '../../src/syntax/session-traits.ts';

/** Built-in functions that leave or read state in a session, with their OIDs, which never change. */
export const STATEFUL_FUNCTIONS: Readonly<Record<string, readonly number[]>> = {
  set_config: [2078],
  pg_advisory_lock: [2880, 2886],
  pg_advisory_lock_shared: [2881, 2887],
  pg_try_advisory_lock: [2882, 2888],
  pg_try_advisory_lock_shared: [2883, 2889],
  pg_advisory_unlock: [2884, 2890],
  pg_advisory_unlock_shared: [2885, 2891],
  pg_advisory_unlock_all: [2892],
  nextval: [1574],
  currval: [1575],
  setval: [1576, 1765],
  lastval: [2559],
  setseed: [1599],
};

const TRAITS: ReadonlyMap<number, SessionTraits> = new Map(
  Object.entries(STATEFUL_FUNCTIONS).flatMap(([name, oids]) => oids.map((oid) => [oid, sessionTraitsOf(`SELECT ${name}(values)`)])),
);

/** The traits of a FunctionCall: those of a text that calls the function by name. */
export function traitsOfCall({ buffer, start, end }: FrameScanner): SessionTraits {
  const at = start + HEADER_BYTES;
  return at + OID_BYTES > end ? NO_TRAITS : (TRAITS.get(buffer.readUInt32BE(at)) ?? NO_TRAITS);
}

const OID_BYTES = 4;
