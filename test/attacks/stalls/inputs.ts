import { extended, query } from './attacker.ts';
import type { StallAttack } from './stall-attack.ts';

const MIB = 1_048_576;

/** A migration that is tried out. */
const migration = (sql: string) => JSON.stringify({ name: 'stall', sql, dryRun: true });
const statement = (sql: string) => JSON.stringify({ sql });

/** By what a client sends. */
export const INPUT_ATTACKS: readonly StallAttack[] = [
  {
    what: 'a body with 99,999 unknown members',
    run: (attacker) => attacker.api('query', `{"sql":"select 1",${members(99_998)}}`),
    answer: '400',
  },
  {
    what: 'a migration of 15 MB of semicolons',
    run: (attacker) => attacker.api('migrations', migration(`select 1${';'.repeat(15 * MIB)}`)),
    answer: '200',
  },
  {
    what: 'a migration of 15 MB of spaces',
    run: (attacker) => attacker.api('migrations', migration(`${' '.repeat(15 * MIB)}select 1`)),
    answer: '200',
  },
  {
    what: 'a query of 64 KB of parentheses',
    run: (attacker) => attacker.api('query', statement('('.repeat(65_536))),
    answer: '400',
  },
  {
    what: '250 KB of public.a,',
    placement: 'schema',
    run: (attacker) => attacker.wire(query(`select ${'public.a,'.repeat(28_000)}1`)),
    answer: '42P01',
  },
  {
    what: '250 KB of pg_notify(',
    placement: 'schema',
    run: (attacker) => attacker.wire(query(`select ${'pg_notify('.repeat(25_000)}`)),
    answer: '42601',
  },
  {
    what: '16 MB of passw /*/*',
    run: (attacker) => attacker.wire(extended(`create table ${'passw /*/*'.repeat(1.5 * MIB)}`)),
    answer: '42601',
  },
];

/** Members of an object. */
function members(count: number): string {
  return Array.from({ length: count }, (_, i) => `"unknown member ${i}":1`).join(',');
}
