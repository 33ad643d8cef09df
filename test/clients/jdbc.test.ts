import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { startTestService, type TestService } from '../support/service.ts';
import { needDebian, runClient } from './debian.ts';

const SOURCE = fileURLToPath(new URL('java/Jdbc.java', import.meta.url));

let service: TestService;
beforeAll(async () => {
  needDebian('default-jdk-headless', 'libpostgresql-jdbc-java');
  service = await startTestService({ POSTERN_BACKENDS_PER_TENANT: '4' });
});
afterAll(() => service?.close());

it('JDBC finds all it needs', async () => {
  const { id, apiKey } = await service.signUp();
  const url = `jdbc:postgresql://127.0.0.1:${service.wirePort}/${id}?user=${id}&password=${apiKey}`;
  const said = await runClient('java', ['-cp', '/usr/share/java/postgresql.jar', SOURCE, url], { env: { PATH: process.env.PATH } });
  const [last, ...checks] = said.trim().split('\n').reverse();
  expect(last).toBe('ok: migrates');
  expect(checks.every((line) => line.startsWith('ok: '))).toBe(true);
});
