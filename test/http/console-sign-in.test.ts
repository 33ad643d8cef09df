import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createdKeyReply } from '../../http/reply-schemas.ts';
import { consoleSignInEndpoints } from '../../http/routes/account.ts';
import { ConsoleSignIn, SIGN_IN_MINUTES } from '../../src/router/one-time-sign-in.ts';
import type { JsonReply } from '../support/doors.ts';
import { eventually } from '../support/eventually.ts';
import { startTestService, type TestOrganization, type TestService } from '../support/service.ts';
import { openDoor, standIn } from './door.ts';

let now = 0;
const consoleSignIn = new ConsoleSignIn(() => now);
let service: TestService;
let acme: TestOrganization;
beforeAll(async () => {
  service = await startTestService({ POSTERN_REFUSALS_PER_MINUTE: '1000' }, { consoleSignIn });
  acme = await service.signUp();
});
afterAll(() => service.close());

const issue = ({ id: organizationId, apiKey } = acme): string => consoleSignIn.issue({ organizationId, apiKey });
const signIn = (token: unknown, more: object = {}): Promise<JsonReply> =>
  service.call('POST', '/api/auth/console', { body: { token, ...more } });

const failedLogins = () => service.observations.filter(({ name }) => name === 'login.failed').length;
const auditOf = async (action: string): Promise<Record<string, unknown>[]> =>
  (await service.call('GET', `/api/audit?action=${action}`, { key: acme.apiKey })).body.data;

interface Described {
  readonly paths: Readonly<Record<string, unknown>>;
  readonly components: { readonly schemas: Readonly<Record<string, unknown>> };
}

const described = async (url: string): Promise<Described> => (await fetch(`${url}/api/openapi.json`)).json() as Promise<Described>;

describe('the token of a one-time address', () => {
  it('is exchanged for an admin key of its own that ends after twelve hours', async () => {
    const token = issue();
    const { status, body } = await signIn(token, { name: 'console, Firefox' });
    expect(status, JSON.stringify(body)).toBe(201);
    const { apiKey, ...key } = createdKeyReply.strict().parse(body);
    const { body: me } = await service.call('GET', '/api/auth/me', { key: apiKey });
    expect(me).toMatchObject({
      organizationId: acme.id,
      key: { keyId: key.keyId, name: 'console, Firefox', scope: 'admin', networks: null },
    });
    const hours = (Date.parse(String(key.expiresAt)) - Date.parse(key.createdAt)) / 3_600_000;
    expect(hours).toBeCloseTo(12, 1);
    const { body: owner } = await service.call('GET', '/api/auth/me', { key: acme.apiKey });
    expect(key.createdBy).toBe(owner.key.keyId);
    expect((await service.call('DELETE', `/api/keys/${key.keyId}`, { key: apiKey })).status).toBe(200);
  });

  it('works once, even for those who come at the same time', async () => {
    const token = issue();
    const replies = await Promise.all(Array.from({ length: 20 }, () => signIn(token)));
    expect(replies.filter(({ status }) => status === 201)).toHaveLength(1);
    for (const { status, body } of replies) if (status !== 201) expect([status, body.code]).toEqual([401, 'unauthorized']);
    const again = await signIn(token);
    expect(again).toMatchObject({ status: 401, body: { detail: 'this address works once, and has been used' } });
    expect(again.body.hint).toMatch(/API_KEY in \.env\.postern/);
  });

  it('is not valid any more after ten minutes, and when another has been made', async () => {
    const [first, second] = [issue(), issue()];
    expect(await signIn(first)).toMatchObject({ status: 401, body: { detail: 'this address is not valid' } });
    now += SIGN_IN_MINUTES * 60_000;
    expect(await signIn(second)).toMatchObject({
      status: 401,
      body: { detail: 'this address works once, within 10 minutes of the start, which are over' },
    });
  });

  it('ends with the key that it stands for', async () => {
    const other = await service.signUp();
    const token = issue(other);
    await service.call('POST', '/api/auth/rotate-key', { key: other.apiKey });
    expect(await signIn(token)).toMatchObject({ status: 401, body: { code: 'unauthorized' } });
  });

  it('counts as a failed login when it is wrong, and no reply, log or audit entry shows it', async () => {
    const token = issue();
    const wrong = `${token.slice(0, -1)}${token.endsWith('A') ? 'B' : 'A'}`;
    const before = failedLogins();
    for (const guess of [wrong, 'x', `${token}=`, token.toLowerCase()]) expect((await signIn(guess)).status).toBe(401);
    expect(failedLogins()).toBe(before + 4);
    for (const bad of ['', 7, null, undefined, token.repeat(9)]) {
      const reply = await signIn(bad);
      expect([reply.status, reply.body.code]).toEqual([400, 'invalid_request']);
      expect(JSON.stringify(reply.body)).not.toContain(token);
    }
    expect((await signIn(token)).status).toBe(201);
    expect((await signIn(token)).status).toBe(401);
    await eventually(
      'the log has both',
      async () => (await auditOf('login.failed')).length > 0 && (await auditOf('auth.console')).length > 0,
    );
    const { body } = await service.call('GET', '/api/audit?limit=100', { key: acme.apiKey });
    expect(body.data.some(({ statement }: { statement?: { sql: string } }) => /^CREATE KEY .*console/.test(statement?.sql ?? ''))).toBe(
      true,
    );
    for (const secret of [token, wrong]) expect(JSON.stringify([body, service.observations])).not.toContain(secret);
  });

  it('is in the description of the API, in words of its own', async () => {
    const document = await described(service.httpUrl);
    expect(document.paths['/api/auth/console']).toMatchObject({ post: { operationId: 'signInToConsole', security: [] } });
    expect(document.components.schemas).toHaveProperty('ConsoleSignIn.properties.token');
    const [operation] = consoleSignInEndpoints({ ...standIn(), consoleSignIn }).map((one) => one.operation);
    const { schema, example } = operation?.replies[201] ?? {};
    expect(schema?.parse(example)).toEqual(example);
    expect(operation?.body.parse(operation.bodyExample)).toEqual(operation?.bodyExample);
  });
});

describe('those who guess', () => {
  it('are refused slowly beyond the limit', async () => {
    const limited = await startTestService({ POSTERN_REFUSALS_PER_MINUTE: '3' }, { consoleSignIn: new ConsoleSignIn() });
    const guess = () => limited.call('POST', '/api/auth/console', { body: { token: 'x' } });
    const statuses = [];
    for (let i = 0; i < 4; i++) statuses.push((await guess()).status);
    await limited.close();
    expect(statuses).toEqual([401, 401, 401, 429]);
  });
});

describe('a service that was not started for development', () => {
  it.each([
    ['by its start', {}],
    ['because it has no console', { consoleSignIn, config: { POSTERN_CONSOLE: 'off' } }],
  ])('has no such call: %s', async (_why, { config, ...options }: { readonly config?: object; readonly consoleSignIn?: ConsoleSignIn }) => {
    const door = await openDoor({ ...options, config: { ...standIn().config, ...config } });
    const reply = await fetch(`${door.url}/api/auth/console`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ token: issue() }),
    });
    expect(reply.status).toBe(404);
    expect(await reply.json()).toMatchObject({ code: 'not_found' });
    const { paths, components } = await described(door.url);
    expect([paths['/api/auth/console'], components.schemas.ConsoleSignIn]).toEqual([undefined, undefined]);
    expect(components.schemas).toHaveProperty('KeyRequest');
    await door.app.close();
  });
});
