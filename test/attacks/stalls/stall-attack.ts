import type { PLACEMENTS } from '../../support/service.ts';
import type { Attacker } from './attacker.ts';

/** One way to keep the event loop from everybody else. */
export interface StallAttack {
  /** Ends the sentence "others are served beside …". */
  readonly what: string;
  /** Default: both. */
  readonly placement?: (typeof PLACEMENTS)[number];
  readonly run: (attacker: Attacker) => Promise<string>;
  /** The status, or the SQLSTATE at the wire door: what shows that the attack has got as far as it should. */
  readonly answer: string;
}
