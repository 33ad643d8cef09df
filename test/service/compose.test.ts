import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';

const FILE = readFileSync(new URL('../../docker/compose.yaml', import.meta.url), 'utf8');

/** The lines of each service, by name. */
const SERVICES = new Map(
  [...((FILE.split(/^services:\n/m)[1] ?? '').split(/^\S/m)[0]?.matchAll(/^ {2}(\w+):\n((?: {4}.*\n|\n)*)/gm) ?? [])].map(
    ([, name = '', lines = '']) => [name, lines],
  ),
);

describe('the compose file', () => {
  it('publishes nothing but on the loopback address', () => {
    expect([...SERVICES.keys()]).toEqual(['postgres', 'postern']);
    expect(SERVICES.get('postgres')).not.toContain('ports:');
    const published = [...(SERVICES.get('postern') ?? '').matchAll(/- "?((?:[\d.]+:)?\d+:\d+)"?$/gm)].map(([, port]) => port);
    expect(published).toEqual(['127.0.0.1:8080:8080', '127.0.0.1:6432:6432']);
  });

  it.each(['postgres', 'postern'])('lets %s write where it has to, do what it has to, and take so much', (name) => {
    const service = SERVICES.get(name);
    for (const line of ['read_only: true', 'cap_drop: [ALL]', 'security_opt: ["no-new-privileges:true"]']) {
      expect(service).toContain(`    ${line}\n`);
    }
    for (const limit of [/^ {4}mem_limit: \S/m, /^ {4}pids_limit: \d+$/m, /^ {6}nofile: \d+$/m]) expect(service).toMatch(limit);
  });
});
