import { expect, test } from 'vitest';
import { parseCommand, UsageError } from '../../../src/admin/admin.ts';

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
  ['doctor'],
  ['cluster', 'list'],
  ['cluster', 'list', '--limit', '1', '--after', 'default'],
  ['cluster', 'add', 'eu2', 'file:/run/secrets/eu2', '--weight', '2', '--cap', '100', '--placement', 'schema'],
  ['cluster', 'add', 'eu2', 'env:EU2_URL'],
  ['cluster', 'drain', 'eu2'],
  ['cluster', 'open', 'eu2'],
  ['cluster', 'remove', 'eu2'],
  ['invite', '--email', 'a@acme.test', '--expires=90d'],
  ['org', 'list', '--json', '--limit', '10', '--after', 'org_000000000000'],
  ['org', 'show', 'org_000000000000'],
  ['org', 'rename', 'org_000000000000', 'Acme'],
  ['org', 'limits', 'org_000000000000'],
  ['org', 'limits', 'org_000000000000', '--disk', '1.5GB', '--sessions', '20', '--requests-per-second', '5', '--statement-ms', '0'],
  ['org', 'limits', 'org_000000000000', '--reset', '--disk', '0'],
  ['key', 'list', 'org_000000000000'],
  ['key', 'revoke', 'key_000000000000'],
  ['session', 'list'],
  ['session', 'list', 'org_000000000000', '--json'],
  ['session', 'kill', 'ses_0000000000000000'],
  ['audit', 'show', 'org_000000000000'],
  ['audit', 'verify', 'org_000000000000'],
  ['audit', 'export', 'org_000000000000'],
  ['stats', '--limit', '3'],
  ['top'],
  ['org', 'dump', 'org_000000000000'],
  ['org', 'restore', 'org_000000000000', '--file', 'acme.dump'],
  ['top', '--limit', '3'],
])('%s %s is a command', (...words) => {
  expect(parseCommand(words)).toBeTypeOf('function');
});

test.each([
  [[], '', 'cluster list'],
  [['org'], 'there is no command org', 'org drop <id>'],
  [['org', 'rename', 'org_000000000000'], '', 'org rename <id> <name>'],
  [['top', '--json'], 'top is for people: stats has --json', 'top [--limit <n>]'],
  [['key', 'list'], '', 'key list <org>'],
  [['key', 'drop'], 'there is no command key drop', 'key issue <id>'],
  [['session', 'list', 'org_000000000000', 'x'], '', 'session list [<org>]'],
  [['orgs\u001b[2J'], 'there is no command orgs\ufffd[2J', 'cluster list'],
  [['org', 'drop'], '', 'org drop <id>'],
  [['key', 'issue'], '', 'key issue <id>'],
  [['org', 'list', 'all'], '', 'org list'],
  [['org', 'drop', 'org_000000000000', 'org_000000000001'], '', 'org drop <id>'],
  [['org', 'list', '--yes'], 'org list has no option --yes', 'org list'],
  [['org', 'drop', 'org_000000000000', '--force'], 'org drop has no option --force', 'org drop <id>'],
  [['org', 'drop', 'org_000000000000', '--yess'], "Unknown option '--yess'", 'org drop <id>'],
  [['org', 'create', 'Acme'], '', 'org create <name> <email>'],
  [['org', 'move', 'org_000000000000'], '', 'org move <id> --abort'],
  [['org', 'move', 'org_000000000000', '--finish', '--force'], '', 'org move <id> [--to <cluster>]'],
  [['invite', 'a@acme.test'], '', 'invite [--email <email>]'],
  [['invite', '--email'], "Option '--email <value>' argument missing", 'invite [--email <email>]'],
  [['cluster', 'add', 'eu2'], '', 'cluster add <name> <url>'],
  [['backup', 'restore'], '', 'backup restore --to <folder> [--at <time>]'],
  [['org', 'at', 'org_000000000000'], '', 'org at <id> --time <time>'],
  [['backup', 'verify', '2026-11-27T09:30:00Z', 'twice'], '', 'backup verify [<backup>]'],
  [['backup', 'create', '--yes'], 'backup create has no option --yes', 'backup create'],
  [['cluster', 'drain', 'eu2', '--cap', '1'], 'cluster drain has no option --cap', 'cluster drain <name>'],
])('%j is none, and how it is written is said', (words, reason, usage) => {
  const error = usageErrorOf(words);
  expect(error.message).toBe(reason);
  expect(error.usage).toMatch(/^usage: postern admin <command>\n\n/);
  expect(error.usage).toContain(`\n  ${usage}`);
});

test('how other commands are written is not said', () => {
  expect(usageErrorOf(['org', 'drop']).usage.split('\n')).toEqual([
    'usage: postern admin <command>',
    '',
    expect.stringMatching(/^ {2}org drop <id> \[--yes\] +removes its data/),
  ]);
  expect(usageErrorOf(['org', 'move', 'org_000000000000']).usage).not.toContain('key issue');
});

test.each([
  [['invite', '--expires', '1w'], '--expires is a number of minutes, hours or days, at most 365d: 30m, 12h, 7d'],
  [['cluster', 'add', 'eu2', 'postgres://eu2.example/'], 'env:NAME or file:/path, not itself'],
  [['cluster', 'add', 'EU 2', 'env:EU2_URL'], 'the name of a cluster has up to 30 of a-z'],
  [['cluster', 'add', 'eu2', 'env:EU2_URL', '--weight', '0'], '--weight is a whole number from 1 to 1000'],
  [['cluster', 'add', 'eu2', 'env:EU2_URL', '--cap', 'many'], '--cap is a whole number from 0'],
  [['cluster', 'add', 'eu2', 'env:EU2_URL', '--placement', 'table'], '--placement is database, schema or both'],
  [['org', 'limits', 'org_000000000000', '--disk', '10'], '--disk is a size with a unit (B, kB, MB, GB, TB), from 1MB to 1024TB'],
  [['org', 'limits', 'org_000000000000', '--disk', '10gb'], '--disk is a size with a unit'],
  [['org', 'limits', 'org_000000000000', '--disk', '1kB'], '--disk is a size with a unit'],
  [['org', 'limits', 'org_000000000000', '--disk', '2000000TB'], '--disk is a size with a unit'],
  [['org', 'limits', 'org_000000000000', '--sessions', '0'], '--sessions is a whole number from 1 to 1000000'],
  [['org', 'limits', 'org_000000000000', '--requests-per-second', '1.5'], '--requests-per-second is a whole number from 1 to 1000000'],
  [['org', 'limits', 'org_000000000000', '--statement-ms', '5s'], '--statement-ms is a whole number from 0 to 2147483647'],
  [['invite', '--expires', '0d'], '--expires is a number'],
  [['invite', '--expires', '366d'], 'at most 365d'],
  [['invite', '--email', 'acme.test'], 'acme.test is no valid e-mail address'],
  [['org', 'create', 'Acme', 'acme.test\u001b[2J'], 'acme.test\ufffd[2J is no valid e-mail address'],
  [['org', 'create', ' ', 'a@acme.test'], 'the name must have 1 to 100 characters'],
])('%j says what is wrong', (words, message) => {
  const error = usageErrorOf(words);
  expect(error.message).toContain(message);
  expect(error.usage).toBe('');
});

function usageErrorOf(words: readonly string[]): UsageError {
  try {
    parseCommand(words);
  } catch (error) {
    if (error instanceof UsageError) return error;
    throw error;
  }
  throw new Error('it is a command');
}
