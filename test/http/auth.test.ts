import { randomBytes } from 'node:crypto';
import pg from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { meReply, rotateKeyReply, signupReply, type WireAddress } from '../../http/reply-schemas.ts';
import { NO_LIMITS } from '../../src/catalog/limits.ts';
import type { SignedUp } from '../../src/router/accounts.ts';
import { newControlDatabase } from '../support/control-databases.ts';
import { startTestService, type TestService } from '../support/service.ts';
import { openDoor, talk } from './door.ts';

const PLACED = { kind: 'database', cluster: 'default', database: 'org_1', schema: 'public', role: 'org_1' } as const;
const SIGNED_UP: SignedUp = {
  organization: {
    id: 'org_1',
    name: 'A',
    email: 'a@acme.test',
    status: 'active',
    createdAt: new Date(),
    placement: PLACED,
    limits: NO_LIMITS,
    diskState: 'within',
  },
  apiKey: 'pst_1',
  keyId: 'key_1',
  quota: { limit: 5, remaining: 4, resetS: 1 },
};

const newEmail = () => `${randomBytes(6).toString('hex')}@acme.test`;

let service: TestService;
beforeAll(async () => {
  service = await startTestService();
});
afterAll(() => service.close());

describe('signing up', () => {
  it('returns the key once and all that a client needs to connect', async () => {
    const email = newEmail();
    const { status, body, headers } = await service.call('POST', '/api/auth/signup', { body: { orgName: '  Äcme 😀 ', email } });
    expect(status).toBe(201);
    expect(signupReply.strict().parse(body)).toEqual({
      apiKey: expect.stringMatching(/^pst_[0-9A-Za-z]{36}$/),
      keyId: expect.stringMatching(/^key_[a-z0-9]{12}$/),
      id: expect.stringMatching(/^org_[a-z0-9]{12}$/),
      organizationId: body.id,
      orgName: 'Äcme 😀',
      email,
      createdAt: expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/),
      connection: { host: '127.0.0.1', port: service.wirePort, user: body.id, database: body.id, sslmode: 'disable' },
      connectionString: `postgres://${body.id}:${body.apiKey}@127.0.0.1:${service.wirePort}/${body.id}?sslmode=disable`,
    });
    expect(headers.get('cache-control')).toBe('no-store');
    const client = new pg.Client(body.connectionString);
    await client.connect();
    expect((await client.query('select current_user')).rows).toEqual([{ current_user: body.id }]);
    await client.end();
  });

  it('names the host of the URL: the configured one, else the one that was asked', async () => {
    const ask = async (wire: WireAddress, host: string) => {
      const signUps = { create: async () => SIGNED_UP };
      const door = await openDoor({ signUps, connection: (asked) => ({ ...wire, host: asked ?? wire.host }) });
      const body = '{"orgName":"A","email":"a@acme.test"}';
      const head = `POST /api/auth/signup HTTP/1.1\r\nHost: ${host}\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\nConnection: close\r\n\r\n`;
      const reply = await talk(door.port, head + body).reply;
      await door.app.close();
      return /"connectionString":"(.*?)"/.exec(reply)?.[1];
    };
    const at = { host: 'db.example', port: 6432 };
    expect(await ask({ ...at, sslmode: 'prefer' }, 'LocalHost:8080')).toBe('postgres://org_1:pst_1@localhost:6432/org_1?sslmode=require');
    expect(await ask({ ...at, sslmode: 'disable' }, '[::1]:8080')).toBe('postgres://org_1:pst_1@[::1]:6432/org_1?sslmode=disable');
    expect(await ask({ ...at, sslmode: 'require' }, '')).toBe('postgres://org_1:pst_1@db.example:6432/org_1?sslmode=require');
  });

  it('takes an address once, whatever the case of its letters', async () => {
    const email = newEmail();
    const first = await service.call('POST', '/api/auth/signup', { body: { orgName: 'A', email } });
    const second = await service.call('POST', '/api/auth/signup', { body: { orgName: 'B', email: email.toUpperCase() } });
    expect(first.status).toBe(201);
    expect(second.status).toBe(409);
    expect(second.body).toMatchObject({ status: 409, code: 'email_taken', retryable: false });
  });

  it('takes an internationalized address once, however its domain is written', async () => {
    const local = `jörg.${randomBytes(6).toString('hex')}`;
    const signUp = (email: string) => service.call('POST', '/api/auth/signup', { body: { orgName: 'A', email } });
    expect(await signUp(`${local}@BÜCHER.example`.normalize('NFD'))).toMatchObject({
      status: 201,
      body: { email: `${local}@bücher.example` },
    });
    expect(await signUp(`${local.toUpperCase()}@xn--bcher-kva.example`)).toMatchObject({ status: 409, body: { code: 'email_taken' } });
  });

  it('takes names of 100 characters, counted as people count them', async () => {
    const orgName = '😀'.repeat(100);
    const { status, body } = await service.call('POST', '/api/auth/signup', { body: { orgName, email: newEmail() } });
    expect([status, body.orgName]).toEqual([201, orgName]);
  });

  it('is limited for each address, and the limit outlives the service', async () => {
    const overrides = {
      POSTERN_CONTROL_DATABASE: newControlDatabase(),
      POSTERN_SIGNUPS_PER_HOUR: '2',
      POSTERN_TRUST_PROXY: '127.0.0.1/32',
      POSTERN_HOST: '0.0.0.0',
    };
    const from = (there: TestService, address: string) =>
      there.call('POST', '/api/auth/signup', { body: { orgName: 'A', email: newEmail() }, headers: { 'x-forwarded-for': address } });

    const before = await startTestService(overrides);
    const first = await from(before, '203.0.113.7');
    expect([first.status, first.headers.get('ratelimit-policy')]).toEqual([201, '"signup";q=2;w=3600']);
    expect(first.headers.get('ratelimit')).toMatch(/^"signup";r=1;t=\d+$/);
    // No client can connect to 0.0.0.0: it is told the host that it has asked.
    expect(new URL(first.body.connectionString).hostname).toBe('127.0.0.1');
    expect((await from(before, '203.0.113.7')).status).toBe(201);
    await before.close();

    const after = await startTestService(overrides);
    const third = await from(after, '203.0.113.7');
    expect(third.status).toBe(429);
    expect(third.body).toMatchObject({ code: 'rate_limited', retryable: true });
    expect(Number(third.headers.get('retry-after'))).toBeGreaterThan(3_500);
    expect(third.headers.get('ratelimit')).toBe(`"signup";r=0;t=${third.headers.get('retry-after')}`);
    expect((await from(after, '203.0.113.8')).status).toBe(201);
    await after.close();
  });
});

describe('the key', () => {
  it('says whose it is', async () => {
    const organization = await service.signUp();
    const { status, body } = await service.call('GET', '/api/auth/me', { key: organization.apiKey });
    expect(status).toBe(200);
    expect(meReply.strict().parse(body)).toMatchObject({
      id: organization.id,
      orgName: organization.orgName,
      email: organization.email,
      organizationId: organization.id,
      key: { keyId: body.apiKey.id, prefix: organization.apiKey.slice(0, 10) },
      apiKey: { prefix: organization.apiKey.slice(0, 10) },
      connectionString: `postgres://${organization.id}@127.0.0.1:${service.wirePort}/${organization.id}?sslmode=disable`,
      connection: { port: service.wirePort, user: organization.id, database: organization.id },
      limits: { statementTimeoutMs: 30_000, maxBodyBytes: 16_777_216 },
    });
    expect(JSON.stringify(body)).not.toContain(organization.apiKey);
  });

  it.each([
    ['cut in half', (key: string) => key.slice(0, 20)],
    ['with a wrong checksum', (key: string) => `${key.slice(0, -1)}${key.endsWith('0') ? '1' : '0'}`],
    ['that never existed', () => 'pst_0000000000000000000000000000001cJ3Yu'],
    ['of 10,000 characters', (key: string) => key.padEnd(10_000, 'x')],
  ])('%s is 401', async (_name, change) => {
    const organization = await service.signUp();
    const { status, body, headers } = await service.call('GET', '/api/auth/me', { key: change(organization.apiKey) });
    expect([status, body.code, headers.get('www-authenticate')]).toEqual([
      401,
      'unauthorized',
      'Bearer realm="postern", error="invalid_token"',
    ]);
  });

  it('is dead once it has been replaced, and the new one works', async () => {
    const organization = await service.signUp();
    const { status, body } = await service.call('POST', '/api/auth/rotate-key', { key: organization.apiKey });
    expect(status).toBe(200);
    expect(rotateKeyReply.strict().parse(body)).toMatchObject({
      apiKey: expect.stringMatching(/^pst_[0-9A-Za-z]{36}$/),
      keyId: body.id,
      organizationId: organization.id,
      previousKey: { keyId: body.previousKey.id, prefix: organization.apiKey.slice(0, 10), invalidatedAt: body.rotatedAt },
    });

    const old = await service.call('GET', '/api/auth/me', { key: organization.apiKey });
    expect(old.status).toBe(401);
    const current = await service.call('GET', '/api/auth/me', { key: body.apiKey });
    expect([current.status, current.body.apiKey.id]).toEqual([200, body.id]);
  });

  it('is replaced by a call that says JSON and has no body, as of clients that say so of all calls', async () => {
    const { apiKey: key } = await service.signUp();
    const headers = { 'content-type': 'application/json' };
    expect((await service.call('GET', '/api/auth/me', { key, headers })).status).toBe(200);
    expect((await service.call('POST', '/api/auth/rotate-key', { key, headers })).status).toBe(200);
  });

  it('is replaced once when two calls try at the same moment', async () => {
    const organization = await service.signUp();
    const replies = await Promise.all(
      [1, 2].map(() => service.call('POST', '/api/auth/rotate-key', { key: organization.apiKey, body: {} })),
    );
    expect(replies.map(({ status }) => status).sort()).toEqual([200, 401]);
  });
});
