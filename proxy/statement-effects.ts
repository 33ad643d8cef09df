import type { TransactionStatus } from '../src/protocol/backend.ts';
import type { PlaceView } from '../src/router/search-path/view.ts';
import type { Pins } from './pins.ts';
import type { ProcessIds } from './process-ids.ts';
import type { Relay } from './relay.ts';
import type { RequestListener } from './requests.ts';
import type { TextTraits } from './statement-text.ts';

type Session = Pick<Relay, 'host' | 'pins' | 'replies' | 'tenure' | 'requests'>;

/** What a client's statements, as they are sent, leave in its session, and what they need to find there. */
export class StatementEffects implements RequestListener {
  readonly #session: Session;

  constructor(session: Session) {
    this.#session = session;
  }

  get pins(): Pins {
    return this.#session.pins;
  }

  get status(): TransactionStatus {
    return this.#session.replies.status;
  }

  get processIds(): ProcessIds {
    return this.#session.host.processIds;
  }

  get view(): PlaceView | undefined {
    return this.#session.host.view;
  }

  statement(traits: TextTraits): void {
    const { replies, tenure, requests } = this.#session;
    if (traits.readsSequenceState || traits.goesOn) tenure.beforeSequenceRead();
    this.noticed(traits);
    const { backend } = tenure;
    const isFailed = this.status === 'E' && replies.queue.length === 0;
    if (traits.namesPrepared && backend !== undefined && !isFailed) requests.materialize(backend, traits.listsPrepared);
  }

  noticed(traits: TextTraits): void {
    const { host, pins, tenure } = this.#session;
    pins.statementSeen(traits);
    if (traits.changesDefaults) pins.defaultsChanged = true;
    if (traits.readsSequenceState) host.sequences.areRead = true;
    if (traits.movesSequences) tenure.sequencesMoved();
    const sequencesMatter = traits.readsSequenceState || traits.namesSequences || (traits.movesSequences && host.sequences.areRead);
    if (sequencesMatter) pins.keep('sequence');
    if (traits.seedsRandom) pins.keep('seed');
    if (traits.staysPrepared) pins.keep('oversized');
  }
}
