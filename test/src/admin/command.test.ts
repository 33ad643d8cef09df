import { expect, test } from 'vitest';
import { parseCommand } from '../../../src/admin/command.ts';
import { UsageError } from '../../../src/admin/usage-error.ts';

test.each([
  ['org', 'list'],
  ['org', 'suspend', 'org_000000000000'],
  ['org', 'resume', 'org_000000000000'],
  ['org', 'drop', 'org_000000000000'],
  ['org', 'drop', '--yes', 'org_000000000000'],
  ['org', 'create', 'Äcme Ltd', 'jörg@bücher.example'],
  ['org', 'clone', 'org_000000000000', '--name', 'preview', '--expires', '12h', '--force'],
  ['key', 'issue', 'org_000000000000'],
  ['invite'],
  ['invite', '--email', 'a@acme.test', '--expires=90d'],
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
  ['org', 'list', '--yes'],
  ['org', 'drop', 'org_000000000000', '--force'],
  ['org', 'create', 'Acme'],
  ['invite', 'a@acme.test'],
])('%j is none', (...words: string[]) => {
  expect(() => parseCommand(words)).toThrow(UsageError);
  expect(() => parseCommand(words)).toThrow('org drop <id>');
});

test.each([
  [['invite', '--expires', '1w'], '--expires is a number of minutes, hours or days, at most 365d: 30m, 12h, 7d'],
  [['invite', '--expires', '0d'], '--expires is a number'],
  [['invite', '--expires', '366d'], 'at most 365d'],
  [['invite', '--email', 'acme.test'], 'acme.test is no valid e-mail address'],
  [['org', 'create', 'Acme', 'acme.test\u001b[2J'], 'acme.test\ufffd[2J is no valid e-mail address'],
  [['org', 'create', ' ', 'a@acme.test'], 'the name must have 1 to 100 characters'],
])('%j says what is wrong', (words, message) => {
  expect(() => parseCommand(words)).toThrow(UsageError);
  expect(() => parseCommand(words)).toThrow(message);
});
