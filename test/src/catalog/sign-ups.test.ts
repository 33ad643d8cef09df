import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { NO_LIMITS } from '../../../src/catalog/limits.ts';
import type { Origin } from '../../../src/observation.ts';
import { newSignUp, ORIGIN, openCatalog, type TestCatalog, TestControlDatabase } from './control-database.ts';

let database: TestControlDatabase;
let opened: TestCatalog;

beforeAll(async () => {
  database = await TestControlDatabase.create();
  opened = await openCatalog(database);
});

afterAll(async () => {
  await opened.catalog.close();
  await database.drop();
});

const from = (sourceIp: string): Origin => ({ ...ORIGIN, sourceIp });

/** Remaining quotas of so many sign-ups from one address. */
async function signUpTimes(times: number, sourceIp: string): Promise<number[]> {
  const remaining: number[] = [];
  for (let n = 0; n < times; n++) {
    const { quota } = await opened.catalog.signUps.record(newSignUp({ signupsPerHour: 5 }), from(sourceIp));
    remaining.push(quota?.remaining ?? Number.NaN);
  }
  return remaining;
}

describe('a sign-up', () => {
  test('records the organization and its first key', async () => {
    const request = newSignUp({ name: 'Ünï "Acme" \\ Ltd', email: 'Jane.Doe@Acme.Test' });
    const { organization, key } = await opened.catalog.signUps.record(request, ORIGIN);
    expect(organization).toEqual({
      id: request.id,
      name: 'Ünï "Acme" \\ Ltd',
      email: 'Jane.Doe@Acme.Test',
      status: 'provisioning',
      createdAt: expect.any(Date),
      placement: request.placement,
      limits: NO_LIMITS,
      diskState: 'within',
    });
    expect(key).toEqual({
      id: request.key.id,
      name: 'first key',
      scope: 'admin',
      createdBy: null,
      expiresAt: null,
      networks: null,
      replacedBy: null,
      organizationId: request.id,
      prefix: request.key.prefix,
      createdAt: expect.any(Date),
      lastUsedAt: null,
      verifier: request.key.verifier,
    });
    expect(await opened.catalog.organizations.find(request.id)).toEqual(organization);
    expect(await opened.catalog.organizations.find('org_000000000000')).toBeUndefined();
  });

  test('opens the organization when it is activated, and not before', async () => {
    const request = newSignUp();
    await opened.catalog.signUps.record(request, ORIGIN);
    expect(await opened.catalog.findByDigest(request.key.digest)).toBeUndefined();
    expect(await opened.catalog.findByOrganization(request.id)).toBeUndefined();

    const organization = await opened.catalog.signUps.activate(request.id, ORIGIN);
    expect(organization.status).toBe('active');
    expect(await opened.catalog.findByDigest(request.key.digest)).toMatchObject({ organization });
    expect((await opened.catalog.findByOrganization(request.id))?.live[0]?.key.id).toBe(request.key.id);
    const { data } = await opened.catalog.audit.list(request.id);
    expect(data).toMatchObject([
      { seq: 1, action: 'auth.signup', actor: { keyId: request.key.id, keyPrefix: request.key.prefix }, sourceIp: ORIGIN.sourceIp },
    ]);
  });

  test.each([
    ['jane@taken.test', 'JANE@Taken.Test'],
    ['ärger@taken.test', 'ÄRGER@taken.test'],
  ])('is refused when the e-mail address is taken, in whatever case: %s, %s', async (first, second) => {
    await opened.catalog.signUps.record(newSignUp({ email: first }), ORIGIN);
    const request = newSignUp({ email: second });
    await expect(opened.catalog.signUps.record(request, ORIGIN)).rejects.toMatchObject({ kind: 'email_taken' });
    expect(await opened.catalog.organizations.find(request.id)).toBeUndefined();
  });

  test('of two at once with one e-mail address one is refused', async () => {
    const results = await Promise.allSettled(
      [1, 2, 3].map(() => opened.catalog.signUps.record(newSignUp({ email: 'race@acme.test' }), ORIGIN)),
    );
    expect(results.map(({ status }) => status).sort()).toEqual(['fulfilled', 'rejected', 'rejected']);
  });

  test('that failed leaves nothing behind, and its e-mail address is free again', async () => {
    const request = newSignUp();
    await opened.catalog.signUps.record(request, ORIGIN);
    opened.catalog.audit.append({
      organizationId: request.id,
      action: 'login.failed',
      origin: ORIGIN,
      outcome: { status: 'error', httpStatus: null, sqlstate: '28P01', rowCount: null, durationMs: null },
    });
    await opened.catalog.audit.flush();
    await opened.catalog.signUps.delete(request.id);

    const tables = [
      'organizations where id',
      'api_keys where organization_id',
      'audit_heads where organization_id',
      'audit_blocks where organization_id',
    ];
    for (const table of tables) expect(await database.query(`select 1 from postern.${table} = $1`, [request.id])).toEqual([]);
    await expect(opened.catalog.signUps.activate(request.id, ORIGIN)).rejects.toMatchObject({ kind: 'not_found' });
    await opened.catalog.signUps.record(newSignUp({ email: request.email }), ORIGIN);
  });

  test('that became active is not forgotten', async () => {
    const request = newSignUp();
    await opened.catalog.signUps.record(request, ORIGIN);
    await opened.catalog.signUps.activate(request.id, ORIGIN);
    await opened.catalog.signUps.delete(request.id);
    expect(await opened.catalog.organizations.find(request.id)).toMatchObject({ status: 'active' });
  });

  test('counts as interrupted once its process is gone', async () => {
    const other = await openCatalog(database);
    const request = newSignUp();
    await other.catalog.signUps.record(request, ORIGIN);
    const interrupted = async () => (await opened.catalog.signUps.takeInterrupted()).map(({ id }) => id);
    expect(await interrupted()).not.toContain(request.id);
    await other.catalog.close();
    await expect.poll(interrupted).toContain(request.id);
    // Whoever has found it may go down before it is undone.
    expect(await interrupted()).toContain(request.id);
  });

  test('counts as interrupted, too, when its own process is not at it any more', async () => {
    const request = newSignUp();
    await opened.catalog.signUps.record(request, ORIGIN);
    const interrupted = async (underWay: string[]) => (await opened.catalog.signUps.takeInterrupted(underWay)).map(({ id }) => id);
    expect(await interrupted([request.id])).not.toContain(request.id);
    expect(await interrupted([])).toContain(request.id);
  });

  test('is anybody’s to undo once it is disowned, also when it was active', async () => {
    const request = newSignUp();
    await opened.catalog.signUps.record(request, ORIGIN);
    await opened.catalog.signUps.activate(request.id, ORIGIN);
    const credential = await opened.catalog.findByOrganization(request.id);
    await opened.catalog.signUps.abandon(request.id);
    expect(credential?.live[0]?.revoked.reason).toMatchObject({ kind: 'key_revoked' });
    expect(await opened.catalog.findByDigest(request.key.digest)).toBeUndefined();
    await opened.catalog.signUps.delete(request.id);
    expect(await opened.catalog.organizations.find(request.id)).toBeUndefined();
  });

  test('cannot become active once another process has begun to undo it, because its own had lost its connection', async () => {
    const other = await openCatalog(database);
    const request = newSignUp();
    await other.catalog.signUps.record(request, ORIGIN);
    await database.allowLogins(false);
    await database.terminate('postern notifications');
    expect((await opened.catalog.signUps.takeInterrupted()).map(({ id }) => id)).toContain(request.id);
    await database.allowLogins(true);
    await expect(other.catalog.signUps.activate(request.id, ORIGIN)).rejects.toMatchObject({ kind: 'not_ready' });
    expect(await opened.catalog.organizations.find(request.id)).toMatchObject({ status: 'provisioning' });
    await other.catalog.close();
  });
});

describe('the limit of sign-ups', () => {
  test('lets five in an hour through and refuses the sixth, which another address does not notice', async () => {
    const startedAt = performance.now();
    expect(await signUpTimes(5, '198.51.100.1')).toEqual([4, 3, 2, 1, 0]);
    const refused = opened.catalog.signUps.record(newSignUp({ signupsPerHour: 5 }), from('198.51.100.1'));
    await expect(refused).rejects.toMatchObject({
      kind: 'rate_limited',
      retryAfterS: expect.toSatisfy((s: number) => s >= 3_599 - (performance.now() - startedAt) / 1_000 && s <= 3_600),
    });
    expect(await signUpTimes(1, '198.51.100.2')).toEqual([4]);
  });

  test('survives a restart, and passes with the hour', async () => {
    await signUpTimes(5, '198.51.100.3');
    const restarted = await openCatalog(database);
    const attempt = () => restarted.catalog.signUps.record(newSignUp({ signupsPerHour: 5 }), from('198.51.100.3'));
    await expect(attempt()).rejects.toMatchObject({ kind: 'rate_limited' });
    restarted.clock.offsetMs = 3_600_000;
    expect(await attempt()).toMatchObject({ quota: { limit: 5, remaining: 4, resetS: 3_600 } });
    await restarted.catalog.close();
  });

  test('counts attempts whose e-mail address was taken', async () => {
    const email = 'again@acme.test';
    const attempt = () => opened.catalog.signUps.record(newSignUp({ email, signupsPerHour: 2 }), from('198.51.100.4'));
    await attempt();
    await expect(attempt()).rejects.toMatchObject({ kind: 'email_taken' });
    await expect(attempt()).rejects.toMatchObject({ kind: 'rate_limited' });
  });

  test('holds for attempts that come at once', async () => {
    const attempts = Array.from({ length: 12 }, () =>
      opened.catalog.signUps.record(newSignUp({ signupsPerHour: 5 }), from('198.51.100.5')),
    );
    const results = await Promise.allSettled(attempts);
    expect(results.filter(({ status }) => status === 'fulfilled')).toHaveLength(5);
  });

  test('takes an IPv6 /64 as one address, and an IPv4 address as itself in either notation', async () => {
    await signUpTimes(3, '2001:db8:1:2::1');
    expect(await signUpTimes(2, '2001:0db8:0001:0002:ffff:ffff:ffff:fffe')).toEqual([1, 0]);
    expect(await signUpTimes(1, '2001:db8:1:3::1')).toEqual([4]);
    await signUpTimes(1, '198.51.100.6');
    expect(await signUpTimes(1, '::ffff:198.51.100.6')).toEqual([3]);
  });

  test('of zero allows no sign-up', async () => {
    const attempt = opened.catalog.signUps.record(newSignUp({ signupsPerHour: 0 }), from('198.51.100.7'));
    await expect(attempt).rejects.toMatchObject({ kind: 'rate_limited', retryAfterS: 3_600 });
  });
});
