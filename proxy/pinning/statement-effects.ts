import type { TransactionStatus } from '../../src/protocol/backend.ts';
import type { SchemaRewriter } from '../../src/router/schema-rewriting/schema-rewriter.ts';
import type { BackendLink } from '../checkout/backend-link.ts';
import type { SqlTraits } from '../inspection/sql-traits.ts';
import type { BackendMessages } from '../relay/backend-messages.ts';
import type { Forwarding, ForwardingListener } from '../relay/forwarding.ts';
import type { SessionServices } from '../sessions/session-services.ts';
import type { Pins } from './pins.ts';
import type { ProcessIds } from './process-ids.ts';

/** What the effects of statements need of the session. */
interface AffectedSession {
  readonly services: SessionServices;
  readonly pins: Pins;
  readonly replies: BackendMessages;
  readonly link: BackendLink;
  readonly forwarding: Forwarding;
}

/** What a client's statements, as they are sent, leave in its session, and what they need to find there. */
export class StatementEffects implements ForwardingListener {
  readonly #session: AffectedSession;

  constructor(session: AffectedSession) {
    this.#session = session;
  }

  get pins(): Pins {
    return this.#session.pins;
  }

  get status(): TransactionStatus {
    return this.#session.replies.status;
  }

  get processIds(): ProcessIds {
    return this.#session.services.processIds;
  }

  get view(): SchemaRewriter | undefined {
    return this.#session.services.view;
  }

  statement(traits: SqlTraits): void {
    const { replies, link, forwarding } = this.#session;
    const { backend } = link;
    if (backend?.session.hasOthersSequenceValues && this.#mustDiscardSequences(traits)) forwarding.discardSequences(backend);
    this.noticed(traits);
    const isFailed = this.status === 'E' && replies.queue.length === 0;
    if (traits.namesPrepared && backend !== undefined && !isFailed) forwarding.materialize(backend, traits.listsPrepared);
  }

  /** What sequences gave to other sessions is not this one's to see, nor what it is told together with its own. */
  #mustDiscardSequences({ readsSequenceState, movesSequences, goesOn }: SqlTraits): boolean {
    return readsSequenceState || goesOn || (movesSequences && this.pins.sequences.use.mayBeAskedFor);
  }

  noticed(traits: SqlTraits): void {
    const { pins } = this.#session;
    pins.statementSeen(traits);
    if (traits.changesDefaults) pins.defaultsChanged = true;
    if (traits.movesSequences) pins.sequences.moved(traits.insertsUnseen);
    if (traits.callsSequenceRead) pins.sequences.called();
    if (traits.seedsRandom) pins.keep('seed');
    if (traits.staysPrepared) pins.keep('oversized');
  }
}
