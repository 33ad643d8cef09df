import { randomBytes } from 'node:crypto';
import { afterAll, describe, expect, inject, test } from 'vitest';
import { hold } from '../conversations/runner.ts';
import { parseScript } from '../conversations/script.ts';
import { createPlainTarget } from '../conversations/target.ts';

const target = await createPlainTarget(inject('cluster'), `runner_${randomBytes(4).toString('hex')}`);
afterAll(() => target.drop());

async function holdText(lines: readonly string[], as: 'plain' | 'postern' = 'plain'): Promise<void> {
  for (const conversation of parseScript('test.conv', `=== A test\n${lines.join('\n')}\n`))
    await hold(conversation, { ...target, kind: as });
}

const ONE = ['A login', 'A> Query SELECT 1', 'A< RowDescription ?column? int4', 'A< DataRow 1', 'A< CommandComplete SELECT 1'];

describe('a conversation', () => {
  test('that is answered as expected is held', async () => {
    await holdText([...ONE, 'A< ReadyForQuery I']);
  });

  test('is over at the first answer that is another, with both sides', async () => {
    const wrong = holdText([...ONE.with(3, 'A< DataRow 2'), 'A< ReadyForQuery I', 'A> Query nonsense']);
    await expect(wrong).rejects.toMatchObject({
      message: 'test.conv:4 (A): not the expected replies',
      expected: 'RowDescription ?column? int4\nDataRow 2\nCommandComplete SELECT 1\nReadyForQuery I',
      actual: 'RowDescription ?column? int4\nDataRow 1\nCommandComplete SELECT 1\nReadyForQuery I',
    });
  });

  test('fails over a message too many, and over one too few', async () => {
    await expect(holdText([...ONE.toSpliced(3, 1), 'A< ReadyForQuery I'])).rejects.toThrow('not the expected replies');
    await expect(holdText([...ONE, 'A< NoData', 'A< ReadyForQuery I'])).rejects.toThrow('not the expected replies');
  });

  test('fails over what comes after its last line', async () => {
    await expect(holdText(ONE)).rejects.toMatchObject({ actual: 'ReadyForQuery I\nEOF' });
  });

  test('leaves out lines for other targets', async () => {
    const lines = [...ONE, 'A[postern]< ReadyForQuery T', 'A[plain]< ReadyForQuery I', 'A[<14] runs nonsense'];
    await holdText(lines);
    await expect(holdText(lines, 'postern')).rejects.toThrow('not the expected replies');
  });

  test('takes {{*}} for anything, {{x*3}} for a text three times, and names for what they stand for', async () => {
    await holdText([
      'A login',
      "A> Query SELECT pg_backend_pid(), current_user, repeat('x', 70), 'any thing'",
      'A< RowDescription {{*}}',
      'A< DataRow {{A.pid}} {{user}} {{x*70}} "any {{*}}"',
      'A< CommandComplete SELECT 1',
      'A< ReadyForQuery I',
    ]);
  });
});

describe('a script', () => {
  test('repeats what is indented, and counts', () => {
    const [conversation] = parseScript(
      'test.conv',
      '=== A test\nA> repeat 2\nA>   Query SELECT {{i}}\nA>   repeat 1\nA>     Sync\nA> Flush\n',
    );
    expect(conversation?.steps.map((step) => step.lines.map(({ text }) => text))).toEqual([
      ['Query SELECT 1', 'Sync', 'Query SELECT 2', 'Sync', 'Flush'],
    ]);
  });

  test('is divided into writes by other lines and by blank ones', () => {
    const [conversation] = parseScript('test.conv', '=== A test\nA> Sync\nA> Sync\n\nA> Sync\nB> Sync\nA< ReadyForQuery I\n');
    expect(conversation?.steps.map(({ kind, actor, lines }) => `${actor} ${kind} ${lines.length}`)).toEqual([
      'A send 2',
      'A send 1',
      'B send 1',
      'A expect 1',
    ]);
  });

  test('says where a line cannot be read', async () => {
    expect(() => parseScript('test.conv', '=== A test\n\nnonsense\n')).toThrow('test.conv:3: not a line of a conversation: nonsense');
    await expect(holdText(['A login', 'A> Nonsense'])).rejects.toThrow('test.conv:3 (A): no frontend message is called Nonsense');
    await expect(holdText(['A dances'])).rejects.toThrow('test.conv:2 (A): no action is called dances');
    await expect(holdText(['A[sometimes] login'])).rejects.toThrow('unknown condition: [sometimes]');
  });
});
