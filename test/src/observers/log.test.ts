import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { fanOut, type Observation } from '../../../src/observation.ts';
import { createLogger, LogOutput, linesForPeople, logObserver } from '../../../src/observers/log.ts';

function logged(level: string, ...observations: readonly Observation[]): Record<string, unknown>[] {
  const lines: string[] = [];
  const observe = fanOut(logObserver(createLogger(level, { destination: { write: (line) => lines.push(line) } })));
  for (const observation of observations) observe(observation);
  return lines.map((line) => JSON.parse(line));
}

const origin = { surface: 'http', sourceIp: '203.0.113.7', requestId: 'r1' } as const;
const KEY = 'pst_4fT9aBcDeFgHiJkLmNoPqRsTuVwXyZ012345';

const request: Observation = {
  name: 'http.request',
  action: 'query',
  origin,
  actor: { organizationId: 'org_a', keyId: 'key_a', keyPrefix: 'pst_4fT9aB' },
  statement: { sql: "alter role me password 'hunter2'", command: 'ALTER ROLE', paramCount: 0 },
  outcome: { status: 'ok', httpStatus: 200, durationMs: 1.5 },
};

describe('the log', () => {
  it('logs starts and stops at info, and calls only at lower levels', () => {
    const started: Observation = { name: 'service.started', httpPort: 1, wirePort: 2, opsPort: 3, startupMs: 4 };
    expect(logged('info', started, request)).toEqual([
      {
        level: 'info',
        time: expect.stringMatching(/^\d{4}-\d\d-\d\dT.*Z$/),
        event: 'service.started',
        httpPort: 1,
        wirePort: 2,
        opsPort: 3,
        startupMs: 4,
        msg: 'service.started',
      },
    ]);
    expect(logged('debug', request)).toMatchObject([
      { level: 'debug', event: 'http.request', action: 'query', outcome: { httpStatus: 200 } },
    ]);
  });

  it('tells failures at error, warnings and failed logins at warn', () => {
    const levels = logged(
      'info',
      { name: 'service.failure', message: 'broken', cause: new Error('why') },
      { name: 'service.warning', message: 'careful' },
      { name: 'login.failed', origin, kind: 'unauthorized', sqlstate: '28P01' },
    ).map(({ level }) => level);
    expect(levels).toEqual(['error', 'warn', 'warn']);
  });

  it('is lines for people on a terminal, which nothing in them can steer', () => {
    const lines: string[] = [];
    const observe = fanOut(logObserver(createLogger('info', { destination: linesForPeople({ write: (text) => lines.push(text) }) })));
    observe({ name: 'service.started', httpPort: 1, wirePort: 2, opsPort: 3, startupMs: 4 });
    observe({ name: 'service.warning', message: `careful \u001b[2J ${KEY}` });
    observe({ name: 'login.failed', origin, kind: 'unauthorized', sqlstate: '28P01' });
    observe({ name: 'service.stopping', reason: 'SIGINT', transactions: 0, requests: 0, message: 'stopping' });
    expect(lines.map((line) => line.replace(/^\d\d:\d\d:\d\d/, 'time'))).toEqual([
      'time warn  careful \ufffd[2J pst_***\n',
      'time warn  login.failed origin={"surface":"http","sourceIp":"203.0.113.7","requestId":"r1"} kind=unauthorized sqlstate=28P01\n',
      'time info  stopping\n',
    ]);
  });

  it('never shows the text of a statement', () => {
    const [line] = logged('trace', request);
    expect(line).toMatchObject({ statement: { command: 'ALTER ROLE', paramCount: 0 } });
    expect(JSON.stringify(line)).not.toContain('hunter2');
  });

  it('tells an error with its causes, and nothing else that hangs on it', () => {
    const cause = Object.assign(new Error('outer', { cause: new Error('inner') }), {
      code: '42P01',
      query: 'select secret',
      parameters: ['secret'],
    });
    const [line] = logged('info', { name: 'service.failure', message: 'a call failed', cause, requestId: 'r1' });
    expect(line).toMatchObject({
      msg: 'a call failed',
      requestId: 'r1',
      cause: { type: 'Error', message: 'outer', code: '42P01', stack: expect.any(String), cause: { message: 'inner' } },
    });
    expect(JSON.stringify(line)).not.toContain('secret');
  });

  it.each([
    ['an API key', `bad key ${KEY} given`, 'bad key pst_*** given'],
    ['a password in a URL', 'no route to postgres://admin:hunter2@db:5432/x', 'no route to postgres://admin:***@db:5432/x'],
    ['a SCRAM verifier', 'at SCRAM-SHA-256$4096:c2FsdA==$aaaa:bbbb', 'at SCRAM-SHA-256$***'],
    ['a password literal', "near alter role x password 'hunter2'", "near alter role x password '***'"],
  ])('masks %s that got into a message', (_name, message, expected) => {
    expect(logged('info', { name: 'service.warning', message })).toMatchObject([{ msg: expected }]);
    expect(JSON.stringify(logged('info', { name: 'service.failure', message: 'x', cause: new Error(message) }))).not.toMatch(
      /hunter2|aaaa|4fT9aBcDeF/,
    );
  });

  it.each([
    [
      'a user agent',
      { name: 'login.failed', origin: { ...origin, userAgent: 'a'.repeat(14_000) }, kind: 'unauthorized', sqlstate: '28P01' },
    ],
    [
      'a path',
      { name: 'service.failure', message: `GET /${'a'.repeat(14_000)} failed`, cause: new Error(`'${'a'.repeat(14_000)}' is long`) },
    ],
    ['an id', { name: 'login.failed', origin, actor: { organizationId: 'a'.repeat(14_000) }, kind: 'unauthorized', sqlstate: '28P01' }],
  ] satisfies [string, Observation][])('cuts %s of 14,000 characters', (_name, observation) => {
    const [line] = logged('info', observation);
    expect(JSON.stringify(line)).toContain('aaa\u2026');
    expect(JSON.stringify(line).length).toBeLessThan(4_000);
  });

  it('has a refusal of each organization once a second, and how many there were meanwhile', () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    onTestFinished(() => void vi.useRealTimers());
    const lines: Record<string, unknown>[] = [];
    const observe = fanOut(logObserver(createLogger('info', { destination: { write: (line) => lines.push(JSON.parse(line)) } })));
    const taken = () => lines.splice(0).map(({ event, organizationId, kind, repeated }) => [event, organizationId, kind, repeated]);
    const refuse = (organizationId: string, kind: string) => observe({ name: 'lease.refused', door: 'wire', organizationId, kind });

    refuse('org_a', 'not_ready');
    for (let n = 0; n < 500; n += 1) refuse('org_a', 'pool_timeout');
    refuse('org_b', 'not_ready');
    observe({ name: 'login.failed', origin, actor: { organizationId: 'org_a' }, kind: 'not_ready', sqlstate: '57P03' });
    expect(taken()).toEqual([
      ['lease.refused', 'org_a', 'not_ready', undefined],
      ['lease.refused', 'org_b', 'not_ready', undefined],
      ['login.failed', undefined, 'not_ready', undefined],
    ]);
    vi.advanceTimersByTime(1_000);
    expect(taken()).toEqual([['lease.refused', 'org_a', 'pool_timeout', 500]]);
    refuse('org_a', 'not_ready');
    refuse('org_b', 'not_ready');
    expect(taken()).toEqual([['lease.refused', 'org_b', 'not_ready', undefined]]);
    vi.advanceTimersByTime(1_000);
    expect(taken()).toEqual([['lease.refused', 'org_a', 'not_ready', 1]]);
    vi.advanceTimersByTime(1_000);
    expect([taken(), vi.getTimerCount()]).toEqual([[], 0]);

    // Names that were made up do not fill the log, nor the memory.
    for (let n = 0; n < 5_000; n += 1)
      observe({ name: 'login.failed', origin, actor: { organizationId: `x${n}` }, kind: 'unauthorized', sqlstate: '28P01' });
    expect(taken()).toHaveLength(1_001);
    vi.advanceTimersByTime(1_000);
    expect(taken()).toEqual([['login.failed', undefined, 'unauthorized', 3_999]]);
  });

  it('says where an error was thrown, however long its message is', () => {
    const [line] = logged('info', { name: 'service.failure', message: 'x', cause: new Error('a'.repeat(14_000)) });
    expect(line).toMatchObject({ cause: { stack: expect.stringContaining('log.test.ts') } });
  });

  it.each([
    ['a password in a URL', `postgres://admin:${'hunter2'.repeat(200)}@db`],
    ['a password literal', `alter role x password '${'hunter2 '.repeat(200)}'`],
    ['a password literal with quotes in it', `alter role x password E'"${'hunter2 '.repeat(200)}'`],
    ['an API key', `${'a '.repeat(500)}${KEY.repeat(20)}`],
  ])('masks %s that is cut', (_name, message) => {
    const [line] = logged('info', { name: 'service.warning', message });
    expect(line?.msg).not.toMatch(/hunter2|4fT9aBcDeF/);
  });

  it('stays a line of JSON whatever is masked in it', () => {
    const [line] = logged('info', { name: 'service.warning', message: 'password "hunter2" and \\ more "' });
    expect(line?.msg).toContain(' more "');
  });
});

describe('the output of the log', () => {
  const failure = (code: string) => Object.assign(new Error(code), { code });
  /** A file that takes so many bytes, and then fails. */
  function fileOf(room: number) {
    const file = {
      text: '',
      room,
      failure: failure('ENOSPC'),
      write(bytes: Uint8Array): number {
        const part = bytes.subarray(0, file.room);
        if (part.length === 0) throw file.failure;
        file.room -= part.length;
        file.text += Buffer.from(part).toString();
        return part.length;
      },
    };
    return file;
  }

  it('drops and counts lines that cannot be written, and goes on with a line of its own when there is room again', () => {
    const file = fileOf(6);
    const output = new LogOutput(file);
    for (const line of ['one\n', 'two\n', 'three\n']) output.write(line);
    expect([file.text, output.dropped]).toEqual(['one\ntw', 2]);
    file.room = 100;
    output.write('four\n');
    expect([file.text, output.dropped]).toEqual(['one\ntw\nfour\n', 2]);
  });

  it('keeps lines for a reader that is slow, in their order, and no more than a megabyte of them', async () => {
    const file = fileOf(6);
    file.failure = failure('EAGAIN');
    const output = new LogOutput(file);
    const lines = Array.from({ length: 1_200 }, (_, n) => `${String(n).padEnd(999)}\n`);
    for (const line of ['one\n', 'two\n', ...lines]) output.write(line);
    expect(output.dropped).toBeGreaterThan(100);
    const kept = lines.slice(0, lines.length - output.dropped);
    file.room = Number.POSITIVE_INFINITY;
    await expect.poll(() => file.text.length).toBe(8 + 1_000 * kept.length);
    expect(file.text).toBe(`one\ntwo\n${kept.join('')}`);
    output.write('last\n');
    expect(file.text.endsWith('\nlast\n')).toBe(true);
  });
});
