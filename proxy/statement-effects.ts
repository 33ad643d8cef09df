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
    const { backend } = tenure;
    if (backend?.session.hasOthersSequenceValues && this.#mustDiscardSequences(traits)) requests.discardSequences(backend);
    this.noticed(traits);
    const isFailed = this.status === 'E' && replies.queue.length === 0;
    if (traits.namesPrepared && backend !== undefined && !isFailed) requests.materialize(backend, traits.listsPrepared);
  }

  /** What sequences gave to other sessions is not this one's to see, nor what it is told together with its own. */
  #mustDiscardSequences({ readsSequenceState, movesSequences, goesOn }: TextTraits): boolean {
    return readsSequenceState || goesOn || (movesSequences && this.pins.sequences.use.mayBeAskedFor);
  }

  noticed(traits: TextTraits): void {
    const { pins } = this.#session;
    pins.statementSeen(traits);
    if (traits.changesDefaults) pins.defaultsChanged = true;
    if (traits.movesSequences) pins.sequences.moved(traits.insertsUnseen);
    if (traits.callsSequenceRead) pins.sequences.called();
    if (traits.seedsRandom) pins.keep('seed');
    if (traits.staysPrepared) pins.keep('oversized');
  }
}
