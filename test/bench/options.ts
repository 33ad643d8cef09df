import { parseArgs } from 'node:util';
import { type Mechanism, mechanismsNamed } from './mechanisms.ts';

export interface Options {
  /** Whose names begin with one of these are run; all where there is none. */
  readonly scenarios: readonly string[];
  readonly quick: boolean;
  readonly rounds: number;
  /** Of each measurement; whole ones, as pgbench and wrk want it. */
  readonly seconds: number;
  readonly clients: readonly number[];
  /** That pgbench's clients are spread over, where it selects one account. */
  readonly threads: number;
  /** Backend sessions that a pooler may have. */
  readonly pool: number;
  /** Whose names begin with one of these take part; all where there is none. */
  readonly peers: readonly string[];
  /** Mechanisms that a second Postern does without, one after the other. */
  readonly without: readonly Mechanism[];
  readonly profile: boolean;
  /** Each peer on the first processor; the loads and PostgreSQL on the others. */
  readonly pin: boolean;
  /** The Markdown file. */
  readonly out: string | undefined;
}

export const USAGE = `npm run bench [-- <scenario>… --quick --rounds n --seconds n --clients n,n --threads n --pool n --peers name,name --without name,name --cpu-prof --pin --out file]
  <scenario>   the beginning of its name is enough: wire, http-point
  --threads    of pgbench in wire-…, 1 as a rule: all of its clients then move from processor to processor together
  --peers      the beginnings of their names: postern,pgbouncer
  --without    measures Postern beside one that does without a mechanism, one after the other; all: each of them
  --cpu-prof   leaves profiles of the Postern processes in a folder that is named at the end
  --pin        keeps each peer on the first processor, and the loads and PostgreSQL on the others: for processor time
  --out        the Markdown file; test/bench/results.md when everything is run in full, else none
`;

/** @throws TypeError with what is wrong */
export function readOptions(args: readonly string[]): Options {
  const { values, positionals } = parseArgs({
    args: [...args],
    allowPositionals: true,
    options: {
      quick: { type: 'boolean', default: false },
      rounds: { type: 'string' },
      seconds: { type: 'string' },
      clients: { type: 'string' },
      threads: { type: 'string', default: '1' },
      pool: { type: 'string', default: '16' },
      peers: { type: 'string' },
      without: { type: 'string' },
      'cpu-prof': { type: 'boolean', default: false },
      pin: { type: 'boolean', default: false },
      out: { type: 'string' },
    },
  });
  const { quick } = values;
  const without = mechanismsNamed(values.without?.split(',') ?? []);
  const complete = !quick && !values.pin && positionals.length === 0 && values.peers === undefined && without.length === 0;
  return {
    scenarios: positionals,
    quick,
    rounds: whole('--rounds', values.rounds ?? (quick ? '1' : '5')),
    seconds: whole('--seconds', values.seconds ?? '1'),
    clients: (values.clients ?? (quick ? '32' : '1,8,32,64')).split(',').map((count) => whole('--clients', count)),
    threads: whole('--threads', values.threads),
    pool: whole('--pool', values.pool),
    peers: without.length > 0 ? ['postern'] : (values.peers?.toLowerCase().split(',') ?? []),
    without,
    profile: values['cpu-prof'],
    pin: values.pin,
    out: values.out ?? (complete ? 'test/bench/results.md' : undefined),
  };
}

function whole(name: string, text: string): number {
  if (!/^[1-9]\d{0,5}$/.test(text)) throw new TypeError(`${name}: must be a whole number, not ${text}`);
  return Number(text);
}
