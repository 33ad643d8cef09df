import { expect, test } from 'vitest';
import { parseCommand, UsageError } from '../../../src/admin/command.ts';

test.each([
  ['org', 'list'],
  ['org', 'suspend', 'org_000000000000'],
  ['org', 'resume', 'org_000000000000'],
  ['org', 'drop', 'org_000000000000'],
  ['key', 'issue', 'org_000000000000'],
])('%s %s is a command', (...words) => {
  expect(parseCommand(words)).toBeTypeOf('function');
});

test.each([
  [],
  ['org'],
  ['org', 'drop'],
  ['key', 'issue'],
  ['org', 'list', 'all'],
  ['org', 'drop', 'org_000000000000', 'org_000000000001'],
  ['org', 'rename', 'org_000000000000'],
  ['key', 'list'],
])('%j is none', (...words: string[]) => {
  expect(() => parseCommand(words)).toThrow(UsageError);
  expect(() => parseCommand(words)).toThrow('org drop <id>');
});
