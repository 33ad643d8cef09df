import type { Bench } from './bench.ts';
import type { Series } from './series.ts';
import type { WirePeers } from './wire-peers.ts';

export interface Scenario {
  readonly name: string;
  /** A line for the report. */
  readonly about: string;
  run(bench: Bench, wire: WirePeers): Promise<Series[]>;
}
