import type { BackendConnection } from '../src/backend/connection.ts';
import type { TransactionStatus } from '../src/protocol/backend.ts';
import type { PlaceView } from '../src/router/search-path/view.ts';
import type { Pins } from './pins.ts';
import type { ProcessIds } from './process-ids.ts';
import type { RelayHost } from './relay-host.ts';
import type { Replies } from './replies.ts';
import type { RequestListener } from './requests.ts';
import type { TextTraits } from './statement-text.ts';
import type { Tenure } from './tenure.ts';

/** As {@link Requests.materialize}. */
export type Materialize = (backend: BackendConnection, alone: boolean) => void;

/** What a client's statements, as they are sent, leave in its session, and what they need to find there. */
export class StatementEffects implements RequestListener {
  readonly pins: Pins;
  readonly #host: RelayHost;
  readonly #replies: Replies;
  readonly #tenure: Tenure;
  readonly #materialize: Materialize;

  constructor(host: RelayHost, pins: Pins, replies: Replies, tenure: Tenure, materialize: Materialize) {
    this.#host = host;
    this.pins = pins;
    this.#replies = replies;
    this.#tenure = tenure;
    this.#materialize = materialize;
  }

  get status(): TransactionStatus {
    return this.#replies.status;
  }

  get processIds(): ProcessIds {
    return this.#host.processIds;
  }

  get view(): PlaceView | undefined {
    return this.#host.view;
  }

  statement(traits: TextTraits): void {
    this.pins.statementSeen(traits);
    if (traits.changesDefaults) this.pins.defaultsChanged = true;
    if (traits.readsSequenceState) this.#beforeSequenceRead();
    if (traits.namesSequences) this.pins.keep('sequence');
    if (traits.movesSequences) {
      this.#tenure.sequencesMoved();
      if (this.#host.sequences.areRead) this.pins.keep('sequence');
    }
    if (traits.seedsRandom) this.pins.keep('seed');
    if (traits.staysPrepared) this.pins.keep('oversized');
    const { backend } = this.#tenure;
    if (traits.namesPrepared && backend !== undefined && this.status !== 'E') this.#materialize(backend, traits.listsPrepared);
  }

  /** What another client's statements got from a sequence is not this one's to see. */
  #beforeSequenceRead(): void {
    this.#host.sequences.areRead = true;
    this.pins.keep('sequence');
    this.#tenure.beforeSequenceRead();
  }
}
