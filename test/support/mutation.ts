import type { SeededRandom } from './random.ts';

const TYPES = 'QPBEDCSHFXdcfpTZKRrvW?\0';
const LENGTHS = [0, 3, 4, 5, -1, 0x7fff_ffff, -0x8000_0000, 0x4000_0000, 10_001];

type Mutation = (message: Buffer, random: SeededRandom) => Buffer;

/**
 * Ways to damage a message; some leave its frame whole, so that whoever reads it gets on to the damage inside and to the
 * messages behind it.
 */
const MUTATIONS: readonly (readonly [weight: number, mutation: Mutation])[] = [
  [40, scribble],
  [10, (message, random) => honest(message.subarray(0, message.length - random.below(bodyLength(message) + 1)))],
  [10, (message, random) => honest(Buffer.concat([message, random.bytes(1 + random.below(20))]))],
  [10, (message) => Buffer.concat([message, message])],
  [10, (message, random) => honest(Buffer.concat([message.subarray(0, 5), random.bytes(bodyLength(message))]))],
  [1, (message, random) => withType(message, TYPES.charCodeAt(random.below(TYPES.length)))],
  [1, (message, random) => withLength(message, LENGTHS[random.below(LENGTHS.length)] ?? 0)],
  [1, (message, random) => withLength(message, message.length - 1 + random.below(9) - 4)],
  [1, (message, random) => message.subarray(0, random.below(message.length))],
];
const TOTAL = MUTATIONS.reduce((sum, [weight]) => sum + weight, 0);

/** @param message with a type, as all but those that open a connection have */
export function mutate(message: Buffer, random: SeededRandom): Buffer {
  let place = random.below(TOTAL);
  for (const [weight, mutation] of MUTATIONS) {
    place -= weight;
    if (place < 0) return mutation(message, random);
  }
  return message;
}

/** @param packet that opens a connection: length, then what it is */
export function mutatePacket(packet: Buffer, random: SeededRandom): Buffer {
  return mutate(Buffer.concat([Buffer.of(0), packet]), random).subarray(1);
}

/** Some bytes of the body are others. */
function scribble(message: Buffer, random: SeededRandom): Buffer {
  const scribbled = Buffer.from(message);
  if (bodyLength(message) === 0) return scribbled;
  for (let count = 1 + random.below(4); count > 0; count -= 1) scribbled[5 + random.below(bodyLength(message))] = random.below(256);
  return scribbled;
}

function bodyLength(message: Buffer): number {
  return Math.max(0, message.length - 5);
}

function honest(message: Buffer): Buffer {
  return withLength(message, message.length - 1);
}

function withLength(message: Buffer, length: number): Buffer {
  const changed = Buffer.from(message);
  changed.writeInt32BE(length, 1);
  return changed;
}

function withType(message: Buffer, type: number): Buffer {
  const changed = Buffer.from(message);
  changed[0] = type;
  return changed;
}
