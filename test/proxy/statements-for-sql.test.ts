import { expect, it } from 'vitest';
import { ClientStatements, STATEMENT_BOUNDS, StatementMemory } from '../../proxy/client-statements.ts';
import { statementsForSql } from '../../proxy/server-statements.ts';
import { newServerStatement } from '../../src/backend/session-state.ts';
import { MemoryBudget, MemoryReservation } from '../../src/runtime/memory-budget.ts';
import { NO_TRAITS } from '../../src/syntax/session-traits.ts';

const MIB = 1_048_576;

/** The names that SQL finds of a client with so many statements of this size. */
function namesOf(count: number, bytes: number): string[] {
  const statements = new ClientStatements(new StatementMemory(new MemoryReservation(new MemoryBudget(STATEMENT_BOUNDS), 'org')), {
    isOver: false,
  });
  const server = newServerStatement(Buffer.alloc(bytes));
  for (let n = 1; n <= count; n += 1) statements.set(`s${n}`, { server, traits: NO_TRAITS, signals: [], deallocates: [] });
  return [...statementsForSql(statements)].map(([name]) => name);
}

it('SQL finds all statements of a client', () => {
  expect(namesOf(2, 10)).toEqual(['s1', 's2']);
  expect(namesOf(4_000, 100)).toHaveLength(4_000);
});

it('SQL finds the first ones of very many', () => {
  expect(namesOf(4_002, 10).at(-1)).toBe('s4000');
  expect(namesOf(100, 2 * MIB - 10)).toEqual(['s1', 's2', 's3', 's4']);
});
