import { FrameScanner, frontendFrames } from '../../src/protocol/frame.ts';
import type { SchemaRewriter } from '../../src/router/schema-rewriting/schema-rewriter.ts';
import { MAX_KEPT_DEFINITION_BYTES, MAX_REWRITTEN_BYTES } from '../buffer-limits.ts';
import type { BufferBudget } from './buffer-budget.ts';

/** Longest names that are looked at: Postgres takes 63 bytes of an SQL name, but protocol names have no limit. */
const MAX_NAMES_BYTES = 65_536;
const NAMES = { B: MAX_NAMES_BYTES, D: MAX_NAMES_BYTES, C: MAX_NAMES_BYTES, E: MAX_NAMES_BYTES };
const OID_BYTES = 4;
const HEADS = { ...NAMES, F: OID_BYTES };
const FRONTEND = frontendFrames({ ...HEADS, Q: 65_536, P: MAX_KEPT_DEFINITION_BYTES });
/** Where texts are rewritten, they have to be held whole. */
const FRONTEND_REWRITTEN = frontendFrames({ ...HEADS, Q: MAX_REWRITTEN_BYTES, P: MAX_REWRITTEN_BYTES });

/** Finds a client's messages, each with as much of it as has to be looked at, if there is room for that. */
export function clientScanner(view: SchemaRewriter | undefined, held: BufferBudget): FrameScanner {
  return new FrameScanner(view === undefined ? FRONTEND : FRONTEND_REWRITTEN, held);
}
