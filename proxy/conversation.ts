import type { Duplex } from 'node:stream';
import type { ServiceError } from '../src/errors.ts';
import type { ErrorFields } from '../src/protocol/backend.ts';
import type { Ending } from './ending.ts';
import type { InFlight } from './in-flight.ts';
import type { Pins } from './pins.ts';
import type { RelayHost } from './relay-host.ts';
import type { Replies } from './replies.ts';
import type { Requests } from './requests.ts';
import type { Run } from './run.ts';
import type { Company } from './sharing.ts';
import type { Tenure } from './tenure.ts';

/** What the parts of one client's conversation may know of each other: each says which of it it does. */
export interface Conversation {
  readonly client: Duplex;
  readonly host: RelayHost;
  readonly pins: Pins;
  readonly toClient: Run;
  readonly replies: Replies;
  readonly requests: Requests;
  readonly tenure: Tenure;
  readonly inFlight: InFlight;
  readonly ending: Ending;
  /** Whether the client's request can be run again instead of telling it of an error that is not its own. */
  canRunAgain(error: ErrorFields): boolean;
  /** Since when its request has been running, if others may have theirs run behind it in such company. */
  errandSince(company: Company): number | undefined;
  /**
   * Its request, of which nothing has been answered, is to be sent again, elsewhere.
   * @param isCanceled its client has asked for it to be canceled
   */
  runElsewhere(isCanceled: boolean): void;
  /** Its request has been answered before; the backend, which it has had to itself since, is at hand again. */
  isAlone(): void;
  /** There is a backend, and nothing to wait for from it. */
  settle(): void;
  /** The same, later: the client may have said more meanwhile. */
  settleAgain(): void;
  /** As {@link Ending.byError}. */
  end(error: ServiceError): void;
  /**
   * Gives back all that has been borrowed.
   * @param disobeyed what its backend runs does not end when it is canceled
   */
  giveBack(disobeyed: boolean): Promise<void>;
}
