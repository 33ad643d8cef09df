import { randomBytes } from 'node:crypto';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { generateInvitation } from '../../src/auth/tokens.ts';
import { runAdmin } from '../support/clusters.ts';
import { newControlDatabase } from '../support/control-databases.ts';
import { type JsonReply, startTestService, type TestService, testVariables } from '../support/service.ts';

/** The limit of an hour is tried on addresses that a trusted proxy tells of. */
let service: TestService;
const variables = { POSTERN_CONTROL_DATABASE: newControlDatabase(), POSTERN_SIGNUPS_PER_HOUR: '5', POSTERN_TRUST_PROXY: '127.0.0.0/8' };
beforeAll(async () => {
  service = await startTestService(variables);
});
afterAll(() => service.close());

function signUpFrom(address: string, email = `${randomBytes(6).toString('hex')}@acme.test`): Promise<JsonReply> {
  return service.call('POST', '/api/auth/signup', { body: { orgName: 'Acme', email }, headers: { 'x-forwarded-for': address } });
}

async function statusesFrom(address: string, count: number): Promise<number[]> {
  const replies = await Promise.all(Array.from({ length: count }, () => signUpFrom(address)));
  return replies.map(({ status }) => status).sort();
}

describe('the sixth sign-up of an hour from one address', () => {
  it('is refused, also after a restart, and others are not affected', async () => {
    for (let attempt = 1; attempt <= 5; attempt += 1) expect((await signUpFrom('203.0.113.1')).status).toBe(201);
    const sixth = await signUpFrom('203.0.113.1');
    expect(sixth).toMatchObject({ status: 429, body: { code: 'rate_limited', sqlstate: '53400', retryable: true } });
    const retryAfter = Number(sixth.headers.get('retry-after'));
    expect(retryAfter).toBeGreaterThan(3_500);
    expect(retryAfter).toBeLessThanOrEqual(3_600);

    await service.close();
    service = await startTestService(variables);
    expect((await signUpFrom('203.0.113.1')).status).toBe(429);
    expect((await signUpFrom('203.0.113.2')).status).toBe(201);
    // Who does not come through a proxy is counted as who they are.
    expect((await service.call('POST', '/api/auth/signup', { body: { orgName: 'A', email: 'direct@acme.test' } })).status).toBe(201);
  });

  it('is refused however fast they come', async () => {
    expect(await statusesFrom('203.0.113.3', 8)).toEqual([201, 201, 201, 201, 201, 429, 429, 429]);
  });

  it('is counted for a whole IPv6 /64', async () => {
    const inOneNetwork = ['2001:db8:1:2::1', '2001:db8:1:2::2', '2001:db8:1:2:ffff::', '[2001:db8:1:2::4]:80', '2001:DB8:1:2::5'];
    for (const address of inOneNetwork) expect((await signUpFrom(address)).status).toBe(201);
    expect((await signUpFrom('2001:db8:1:2:3:4:5:6')).status).toBe(429);
    expect((await signUpFrom('2001:db8:1:3::1')).status).toBe(201);
  });

  it('may be one that fails: every attempt counts', async () => {
    const email = `${randomBytes(6).toString('hex')}@acme.test`;
    const statuses: number[] = [];
    for (let attempt = 1; attempt <= 6; attempt += 1) statuses.push((await signUpFrom('203.0.113.4', email)).status);
    expect(statuses).toEqual([201, 409, 409, 409, 409, 429]);
  });
});

describe('a proxy that is not trusted', () => {
  let plain: TestService;
  afterEach(() => plain.close());

  it('is the client: what it says of others does not count', async () => {
    plain = await startTestService({ POSTERN_SIGNUPS_PER_HOUR: '1' });
    const from = (address: string, email: string) =>
      plain.call('POST', '/api/auth/signup', { body: { orgName: 'Acme', email }, headers: { 'x-forwarded-for': address } });
    expect((await from('203.0.113.1', 'a@acme.test')).status).toBe(201);
    expect((await from('203.0.113.2', 'b@acme.test')).status).toBe(429);
  });
});

describe('sign-up by invitation', () => {
  let service: TestService;
  const variables = { ...testVariables(), POSTERN_SIGNUP: 'invite' };
  beforeAll(async () => {
    service = await startTestService(variables);
  });
  afterAll(() => service.close());

  const signUp = (body: object, at = service) =>
    at.call('POST', '/api/auth/signup', { body: { orgName: 'Acme', email: `${randomBytes(6).toString('hex')}@acme.test`, ...body } });

  it('takes an invitation of the operator once', async () => {
    const printed = await runAdmin(variables, ['invite', '--email', 'jane@acme.test', '--expires', '1h']);
    const [, email, invite] = /^an invitation for (\S+) until 20\S+Z, shown only now: (inv_[0-9A-Za-z]{36})$/.exec(printed) ?? [];

    expect(await signUp({ email })).toMatchObject({
      status: 403,
      body: { code: 'invite_required', hint: expect.stringContaining('admin invite') },
    });
    expect(await signUp({ invite })).toMatchObject({ status: 403, body: { code: 'invite_invalid' } });
    const replies = await Promise.all([signUp({ email, invite }), signUp({ email, invite })]);
    expect(replies.map(({ status }) => status).sort()).toEqual([201, 403]);
    expect(await signUp({ invite: generateInvitation() })).toMatchObject({ status: 403, body: { code: 'invite_invalid' } });
    expect(JSON.stringify(service.observations)).not.toContain(invite);
  });

  it('needs none where it is open, and no invitation opens it where it is closed', async () => {
    for (const [mode, status, code] of [
      ['open', 201, undefined],
      ['closed', 403, 'signup_closed'],
    ] as const) {
      const other = await startTestService({ ...variables, POSTERN_SIGNUP: mode });
      const reply = await signUp({ invite: generateInvitation() }, other);
      expect([reply.status, reply.body.code]).toEqual([status, code]);
      await other.close();
    }
  });
});
