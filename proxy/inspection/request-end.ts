import { type Edits, NO_EDITS } from '../../src/syntax/edits.ts';
import type { SessionTraits } from '../../src/syntax/session-traits.ts';
import { type ShownRows, shownRows } from '../relay/reply-rewriting.ts';
import type { WireSession } from '../relay/wire-session.ts';
import type { Batch } from './ddl-audit.ts';

/** Stands beside the Sync, Query or FunctionCall that ends a request in the reply queue: what inspection has found for its reply. */
export interface RequestEnd {
  readonly batch: Batch | undefined;
  /** Names that a Query deallocates and that have not been answered yet, in order. */
  readonly deallocations: string[];
  /** The replacements made in the text of a Query. */
  readonly edits: Edits;
  /** What changes the rows for the client. */
  readonly shown: ShownRows | undefined;
}

/** The client's request ends here. @returns what has to be known when its reply arrives, if anything */
export function endRequest(
  session: WireSession,
  deallocations: string[] = [],
  edits: Edits = NO_EDITS,
  shows?: SessionTraits['shows'],
): RequestEnd | undefined {
  const batch = session.audit?.take();
  const shown = shows && shownRows(session.services, shows);
  const isPlain = batch === undefined && deallocations.length === 0 && edits.length === 0 && shown === undefined;
  return isPlain ? undefined : { batch, deallocations, edits, shown };
}
