import { describe, expect, test } from 'vitest';
import { StatementRegistry } from '../../../src/multiplex/statement-registry.ts';

const definition = (text: string, types = '\0\0') => Buffer.from(`${text}\0${types}`);
const INT4 = '\0\x01\0\0\0\x17';

describe('a text', () => {
  test('is one statement, with or without the definition at hand', () => {
    const registry = new StatementRegistry();
    const server = registry.intern(definition("SELECT 'ä', $1"), '');
    expect(registry.findText("SELECT 'ä', $1", '')).toBe(server);
    expect(registry.find(definition("SELECT 'ä', $1"), '')).toBe(server);
    expect(registry.intern(definition("SELECT 'ä', $1"), '')).toBe(server);
  });

  test('is another statement with types, and in another context', () => {
    const registry = new StatementRegistry();
    const [plain, typed] = [registry.intern(definition('SELECT $1'), ''), registry.intern(definition('SELECT $1', INT4), '')];
    const elsewhere = registry.intern(definition('SELECT $1'), 'as written');
    expect(new Set([plain, typed, elsewhere]).size).toBe(3);
    expect(registry.findText('SELECT $1', '')).toBe(plain);
    expect(registry.findText('SELECT $1', 'as written')).toBe(elsewhere);
  });

  test.each(['SELECT 1\0\0\x01', 'SELECT 1\0', 'SELECT 1', 'S', ''])('is another statement than the malformed %j', (bytes) => {
    const registry = new StatementRegistry();
    const malformed = registry.intern(Buffer.from(bytes), '');
    expect(registry.find(definition('SELECT 1'), '')).toBeUndefined();
    expect(registry.find(definition(''), '')).toBeUndefined();
    expect(registry.intern(definition('SELECT 1'), '')).not.toBe(malformed);
  });

  test('without a name gets a statement when it comes for the third time', () => {
    const registry = new StatementRegistry();
    const seen = [1, 2, 3].map(() => registry.repeated(definition('SELECT 1'), ''));
    expect(seen.map((server) => server !== undefined)).toEqual([false, false, true]);
    expect(registry.findText('SELECT 1', '')).toBe(seen[2]);
  });

  test('has one latency, whatever its types, context and literals are', () => {
    const registry = new StatementRegistry();
    const statements = [
      registry.intern(definition('SELECT n FROM t WHERE n = 1'), ''),
      registry.intern(definition('SELECT n FROM t WHERE n = 2', INT4), ''),
      registry.intern(definition('SELECT n FROM t WHERE n = 1'), '[["TimeZone","UTC"]]'),
    ];
    const latencies = new Set(statements.map((server) => registry.latencyOf(server)));
    expect(latencies.size).toBe(1);
    expect(latencies.has(undefined)).toBe(false);
  });

  test.each(['UPDATE t SET n = 1', "SELECT E'a\\'b'", 'SELECT n FROM t FOR UPDATE'])('has none where it may not share: %s', (text) => {
    const registry = new StatementRegistry();
    expect(registry.latencyOf(registry.intern(definition(text), ''))).toBeUndefined();
  });
});

test('when tables have changed a text is prepared as another statement, and has the latency that it had', () => {
  const registry = new StatementRegistry();
  const before = registry.intern(definition('SELECT 1'), '');
  const latency = registry.latencyOf(before);
  const { generation } = registry;
  registry.invalidate();
  expect(registry.generation).not.toBe(generation);
  expect(registry.find(definition('SELECT 1'), '')).toBeUndefined();
  expect(registry.findText('SELECT 1', '')).toBeUndefined();
  expect(registry.repeated(definition('SELECT 1'), '')).toBeUndefined();
  const after = registry.intern(definition('SELECT 1'), '');
  expect(after).not.toBe(before);
  expect(registry.latencyOf(after)).toBe(latency);
});

test('one that is forgotten gets another name, and takes no later one with it', () => {
  const registry = new StatementRegistry();
  const first = registry.intern(definition('SELECT 1'), '');
  registry.forget(first);
  const second = registry.intern(definition('SELECT 1'), '');
  registry.forget(first);
  expect(registry.findText('SELECT 1', '')).toBe(second);
  expect(second.name).not.toEqual(first.name);
});

test('what is kept with statements counts', () => {
  const registry = new StatementRegistry();
  for (let i = 0; i < 20; i += 1) registry.weigh(registry.intern(definition(`SELECT ${i}`), ''), 1024 * 1024);
  expect(registry.findText('SELECT 0', '')).toBeUndefined();
  expect(registry.findText('SELECT 19', '')).toBeDefined();
});
