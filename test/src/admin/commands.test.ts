import { expect, test } from 'vitest';
import { parseCommand } from '../../../src/admin/commands.ts';
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
  ['cluster', 'list'],
  ['cluster', 'add', 'eu2', 'file:/run/secrets/eu2', '--weight', '2', '--cap', '100', '--placement', 'schema'],
  ['cluster', 'add', 'eu2', 'env:EU2_URL'],
  ['cluster', 'drain', 'eu2'],
  ['cluster', 'open', 'eu2'],
  ['cluster', 'remove', 'eu2'],
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
  ['cluster', 'add', 'eu2'],
  ['cluster', 'drain', 'eu2', '--cap', '1'],
])('%j is none', (...words: string[]) => {
  expect(() => parseCommand(words)).toThrow(UsageError);
  expect(() => parseCommand(words)).toThrow('org drop <id>');
});

test.each([
  [['invite', '--expires', '1w'], '--expires is a number of minutes, hours or days, at most 365d: 30m, 12h, 7d'],
  [['cluster', 'add', 'eu2', 'postgres://eu2.example/'], 'env:NAME or file:/path, not itself'],
  [['cluster', 'add', 'EU 2', 'env:EU2_URL'], 'the name of a cluster has up to 30 of a-z'],
  [['cluster', 'add', 'eu2', 'env:EU2_URL', '--weight', '0'], '--weight is a whole number from 1 to 1000'],
  [['cluster', 'add', 'eu2', 'env:EU2_URL', '--cap', 'many'], '--cap is a whole number from 0'],
  [['cluster', 'add', 'eu2', 'env:EU2_URL', '--placement', 'table'], '--placement is database, schema or both'],
  [['invite', '--expires', '0d'], '--expires is a number'],
  [['invite', '--expires', '366d'], 'at most 365d'],
  [['invite', '--email', 'acme.test'], 'acme.test is no valid e-mail address'],
  [['org', 'create', 'Acme', 'acme.test\u001b[2J'], 'acme.test\ufffd[2J is no valid e-mail address'],
  [['org', 'create', ' ', 'a@acme.test'], 'the name must have 1 to 100 characters'],
])('%j says what is wrong', (words, message) => {
  expect(() => parseCommand(words)).toThrow(UsageError);
  expect(() => parseCommand(words)).toThrow(message);
});
