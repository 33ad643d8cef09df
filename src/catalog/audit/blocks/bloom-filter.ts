/** Bits of the filter for each id. */
const BITS = 8;
const PROBES = 4;

/**
 * Which request ids occur in a block, as a Bloom filter. Its false positives make a search read one block in forty in vain.
 * @see https://en.wikipedia.org/wiki/Bloom_filter
 */
export function filterOf(requestIds: readonly string[]): Buffer {
  const filter = Buffer.alloc(Math.max(1, (requestIds.length * BITS) / 8));
  const bits = 8 * filter.length;
  for (const id of requestIds) {
    // The same bits as of `probesOf`, computed with small integers.
    const [first, step] = hashesOf(id);
    const ahead = step % bits;
    for (let i = 0, bit = first % bits; i < PROBES; i++, bit = (bit + ahead) % bits) {
      filter[bit >> 3] = (filter[bit >> 3] ?? 0) | (1 << (bit & 7));
    }
  }
  return filter;
}

/** The numbers of the bits that are set for an id, each modulo the length of the filter, in the order of `get_bit`. */
export function probesOf(requestId: string): number[] {
  const [first, step] = hashesOf(requestId);
  return Array.from({ length: PROBES }, (_, i) => first + i * step);
}

function hashesOf(requestId: string): readonly [first: number, step: number] {
  const first = fnv1a(requestId, 0x811c9dc5);
  return [first, fnv1a(requestId, first)];
}

/** FNV-1a of 32 bits, over UTF-16 units. @see http://www.isthe.com/chongo/tech/comp/fnv/ */
function fnv1a(text: string, basis: number): number {
  let hash = basis;
  for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193);
  return hash >>> 0;
}
