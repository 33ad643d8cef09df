import { expect, test } from 'vitest';
import { parseOptions } from '../../../src/protocol/startup.ts';

test.each([
  ['', []],
  [' \t\n ', []],
  ['-c timezone=UTC', [['timezone', 'UTC']]],
  ['-ctimezone=UTC', [['timezone', 'UTC']]],
  ['--timezone=UTC', [['timezone', 'UTC']]],
  [
    '  --statement-timeout=5s  -c   lock-timeout=1 ',
    [
      ['statement_timeout', '5s'],
      ['lock_timeout', '1'],
    ],
  ],
  ['-c datestyle=German,\\ YMD', [['datestyle', 'German, YMD']]],
  ['--time\\zone=Europe/Lis\\bon', [['timezone', 'Europe/Lisbon']]],
  ['-c a=b\\\\c', [['a', 'b\\c']]],
  ['-c a=b\\', [['a', 'b']]],
  ['-c a=', [['a', '']]],
  ['-c a=b=c', [['a', 'b=c']]],
  ['-c application_name=a-b', [['application_name', 'a-b']]],
  ['-c postern.pool=session', [['postern.pool', 'session']]],
  [
    '-c a=1 -c a=2',
    [
      ['a', '1'],
      ['a', '2'],
    ],
  ],
  ['-e', [['datestyle', 'euro']]],
  ['-e --', [['datestyle', 'euro']]],
  ['-S 64', [['work_mem', '64']]],
  [
    '-eS64',
    [
      ['datestyle', 'euro'],
      ['work_mem', '64'],
    ],
  ],
  [
    '-fs -f n',
    [
      ['enable_seqscan', 'false'],
      ['enable_nestloop', 'false'],
    ],
  ],
  ['-c search_path=\\"A\\ b\\",public', [['search_path', '"A b",public']]],
])('%j', (options, settings) => {
  expect(parseOptions(options)).toEqual(settings);
});

test.each([
  ['-d', 'invalid command-line argument for server process: -d'],
  ['-c', 'invalid command-line argument for server process: -c'],
  ['-S', 'invalid command-line argument for server process: -S'],
  ['-fx', 'invalid command-line argument for server process: -fx'],
  ['-f \\', 'invalid command-line argument for server process: -f'],
  ['-', 'invalid command-line argument for server process: -'],
  ['-e -- -c a=b', 'invalid command-line argument for server process: -c'],
  ['\\', 'invalid command-line argument for server process: '],
  ['postgres', 'invalid command-line argument for server process: postgres'],
  ['-c a=1 b', 'invalid command-line argument for server process: b'],
  ['-c timezone', '-c timezone requires a value'],
  ['--timezone', '--timezone requires a value'],
  ['-c -e', '-c -e requires a value'],
])('Postgres refuses %j', (options, message) => {
  expect(() => parseOptions(options)).toThrow(expect.objectContaining({ name: 'ServiceError', sqlstate: '42601', message }));
});

test('a long list is read in one go', () => {
  expect(parseOptions('-c a=b '.repeat(1_200))).toHaveLength(1_200);
  expect(() => parseOptions('x'.repeat(10_000))).toThrow('invalid command-line argument');
});
