import { randomBytes } from 'node:crypto';
import { afterAll, describe, expect, inject, test } from 'vitest';
import { describeBackend } from '../conversations/backend-message.ts';
import { answers, differences } from '../conversations/parity.ts';
import { canBeSent, type Mode } from '../conversations/statement-bytes.ts';
import { statements } from '../conversations/statements.ts';
import { createPlainTarget, type PlainTarget } from '../conversations/target.ts';

const MODES: readonly Mode[] = ['simple', 'text', 'binary', 'pipelined'];

const created: PlainTarget[] = [];
afterAll(async () => {
  for (const target of created) await target.drop();
});

async function freshPlainTarget(): Promise<PlainTarget> {
  const target = await createPlainTarget(inject('cluster'), `parity_${randomBytes(4).toString('hex')}`);
  created.push(target);
  return target;
}

function sqlstateOf(answer: readonly { type: string; body: Buffer }[]): string | undefined {
  const error = answer.find(({ type }) => type === 'E');
  return error && describeBackend(error).split(' ')[2];
}

describe('the corpus', () => {
  test('every statement succeeds, or fails with its SQLSTATE', async () => {
    for (const mode of ['simple', 'text'] as const) {
      const sent = statements.filter((statement) => (mode === 'simple' ? canBeSent(statement, mode) : statement.params !== undefined));
      const setUp = mode === 'simple' ? [] : statements.filter(({ params }) => params === undefined);
      const answered = await answers(await freshPlainTarget(), [...setUp, ...sent], mode);
      const outcomes = sent.map(({ sql }, index) => ({ sql, fails: sqlstateOf(answered[setUp.length + index] ?? []) }));
      expect(outcomes).toEqual(sent.map(({ sql, fails }) => ({ sql, fails })));
    }
  });

  test('a single byte that differs is found, in its place', () => {
    const row = (text: string) => [{ type: 'D', body: Buffer.from(text) }];
    const two = [{ sql: 'SELECT 1' }, { sql: 'SELECT 2' }];
    const same = row('\0\x01\0\0\0\x01a');
    const found = differences(two, [same, same], [same, row('\0\x01\0\0\0\x01b')]);
    expect(found).toEqual([{ sql: 'SELECT 2', left: ['DataRow a 4400010000000161'], right: ['DataRow b 4400010000000162'] }]);
    expect(differences(two, [same, same], [same, [...same, ...same]])).toHaveLength(1);
  });
});

describe('plain PostgreSQL beside plain PostgreSQL', () => {
  test.each(MODES)('%s: the same bytes are answered alike in two databases', async (mode) => {
    const sent = statements.filter((statement) => canBeSent(statement, mode));
    const [one, other] = [await freshPlainTarget(), await freshPlainTarget()];
    expect(differences(sent, await answers(one, sent, mode), await answers(other, sent, mode))).toEqual([]);
  });
});
