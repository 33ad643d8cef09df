import { query } from './attacker.ts';
import type { StallAttack } from './stall-attack.ts';

const api = (sql: string, params?: readonly unknown[]) => JSON.stringify(params === undefined ? { sql } : { sql, params });

/** By what the database sends, or by what it is to be sent as values. */
export const RESULT_ATTACKS: readonly StallAttack[] = [
  {
    what: 'an array of 2,000,000 NULLs',
    run: (attacker) => attacker.api('query', api('select array_agg(null::int) from generate_series(1,2000000)')),
    answer: '200',
  },
  {
    what: 'a text of 30,000,000 quotes',
    run: (attacker) => attacker.api('query', api(`select repeat('"',30000000)`)),
    answer: '200',
  },
  {
    what: 'an array of 300,000 timestamps',
    run: (attacker) => attacker.api('query', api('select array_agg(now()) from generate_series(1,300000)')),
    answer: '200',
  },
  {
    what: 'an array of 1,000,000 floats',
    run: (attacker) => attacker.api('query', api('select array_agg(random()) from generate_series(1,1000000)')),
    answer: '200',
  },
  {
    what: 'a text of 5,000,000 control characters',
    run: (attacker) => attacker.api('query', api('select repeat(chr(1),5000000)')),
    answer: '200',
  },
  {
    what: 'an error of 30 MB over HTTP',
    run: (attacker) => attacker.api('query', api(`do $$ begin raise exception '%', repeat('x',30000000); end $$`)),
    answer: '400',
  },
  {
    what: 'an error of 30 MB at the wire door',
    run: (attacker) => attacker.wire(query(`do $$ begin raise exception '%', repeat('x',30000000); end $$`)),
    answer: 'P0001',
  },
  {
    what: 'an object of 90,000 long numbers as a parameter of /sql',
    run: (attacker) => attacker.neon(`{"query":"select $1::jsonb is null","params":[{${numbers(90_000)}}]}`),
    answer: '200',
  },
  {
    what: 'a hundred numbers of 149,000 digits',
    run: (attacker) => attacker.api('query', `{"sql":"select $1::json is null","params":[[${longNumbers(100, 149_000)}]]}`),
    answer: '200',
  },
];

function numbers(count: number): string {
  return Array.from({ length: count }, (_, i) => `"k${i}":12345678901234567890123.${i}`).join(',');
}

function longNumbers(count: number, digits: number): string {
  return Array.from({ length: count }, () => '1'.repeat(digits)).join(',');
}
