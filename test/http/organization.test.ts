import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { organizationReply } from '../../http/reply-schemas.ts';
import { eventually } from '../support/eventually.ts';
import { type JsonReply, startTestService, type TestOrganization, type TestService, testVariables } from '../support/service.ts';

const newEmail = () => `${randomBytes(6).toString('hex')}@acme.test`;

/** Two processes of one Postern. */
let service: TestService;
let other: TestService;
beforeAll(async () => {
  const variables = testVariables();
  service = await startTestService(variables);
  other = await startTestService(variables);
});
afterAll(() => Promise.all([service.close(), other.close()]));

function patch({ apiKey: key }: TestOrganization, body: object, headers: Record<string, string> = {}): Promise<JsonReply> {
  return service.call('PATCH', '/api/organization', { key, body, headers });
}

async function actionsOf({ id }: TestOrganization): Promise<string[]> {
  const { catalog } = service.service.router;
  await catalog.audit.flush();
  const { data } = await catalog.audit.list(id, { limit: 100 });
  return data.map(({ action, actor, outcome }) => `${action} ${actor.keyPrefix} ${outcome.status}`).reverse();
}

describe('an organization', () => {
  it('changes its name sixty times an hour', async () => {
    const organization = await service.signUp();
    for (let n = 0; n < 60; n += 1) expect((await patch(organization, { name: `Name ${n}` })).status).toBe(200);
    const refused = await patch(organization, { name: 'One too many' });
    expect(refused).toMatchObject({
      status: 429,
      body: { code: 'rate_limited', detail: 'at most 60 changes of the name an hour are allowed' },
    });
    expect(Number(refused.headers.get('retry-after'))).toBeGreaterThan(3_000);
    expect((await patch(organization, { email: `other-${organization.email}` })).status).toBe(200);
  });

  it('changes its name and its address, which every process shows, and keeps its sessions', async () => {
    const organization = await service.signUp();
    const session = await other.connect(organization);
    const email = newEmail().toUpperCase();
    const renamed = await patch(organization, { name: ' Äcme ' });
    expect([renamed.status, organizationReply.strict().parse(renamed.body)]).toMatchObject([
      200,
      { id: organization.id, organizationId: organization.id, name: 'Äcme', orgName: 'Äcme', email: organization.email },
    ]);
    expect((await patch(organization, { email })).body.email).toBe(email.replace('ACME.TEST', 'acme.test'));
    const me = await other.call('GET', '/api/auth/me', { key: organization.apiKey });
    expect(me.body).toMatchObject({ orgName: 'Äcme', email: email.replace('ACME.TEST', 'acme.test') });
    expect((await session.query('SELECT 1 AS one')).rows).toEqual([{ one: 1 }]);
    await session.end();

    const signUp = (address: string) => service.call('POST', '/api/auth/signup', { body: { orgName: 'B', email: address } });
    expect((await signUp(email)).status).toBe(409);
    expect((await signUp(organization.email)).status).toBe(201);
    expect(await actionsOf(organization)).toContain(`organization.updated ${organization.apiKey.slice(0, 10)} ok`);
  });

  it('does not get an address that is taken, nor learns of many which are', async () => {
    const [organization, taken, rival] = [await service.signUp(), await service.signUp(), await service.signUp()];
    const { status, body } = await patch(organization, { email: taken.email.toUpperCase(), name: 'Never' });
    expect([status, body.code]).toEqual([409, 'email_taken']);
    const race = await Promise.all([organization, rival].map((one) => patch(one, { email: `race-${taken.email}` })));
    expect(race.map((reply) => reply.status).sort()).toEqual([200, 409]);
    for (let n = 0; n < 5; n += 1) await patch(organization, { email: taken.email });
    expect(await patch(organization, { email: newEmail() })).toMatchObject({ status: 429, body: { code: 'rate_limited' } });
    expect((await patch(organization, { name: 'Still' })).body.name).toBe('Still');
  });

  it.each([
    [{}, 'the body: must have a name or an email'],
    [{ name: ' ' }, 'name: must have 1 to 100 characters'],
    [{ email: 'acme.test' }, 'email: must be a valid e-mail address'],
  ])('is not changed by %j', async (body, message) => {
    expect(await patch(await service.signUp(), body)).toMatchObject({ status: 400, body: { message } });
  });

  it('changes once with an Idempotency-Key', async () => {
    const organization = await service.signUp();
    const headers = { 'idempotency-key': 'rename-1' };
    const first = await patch(organization, { name: 'One' }, headers);
    await patch(organization, { name: 'Two' });
    const again = await patch(organization, { name: 'One' }, headers);
    expect([again.status, again.body, again.headers.get('idempotency-replayed')]).toEqual([200, first.body, 'true']);
    expect((await service.call('GET', '/api/auth/me', { key: organization.apiKey })).body.orgName).toBe('Two');
    expect((await patch(organization, { name: 'Three' }, headers)).status).toBe(422);
  });
});

describe('an organization that deletes itself', () => {
  it('says which it is', async () => {
    const organization = await service.signUp();
    for (const body of [{}, { confirm: 'yes' }, { confirm: organization.orgName }]) {
      const reply = await service.call('DELETE', '/api/organization', { key: organization.apiKey, body });
      expect([reply.status, reply.body.code]).toEqual([400, 'invalid_request']);
    }
    expect((await service.query(organization, 'SELECT 1')).status).toBe(200);
  });

  it('is gone at once, with its sessions in every process, and only its audit log is kept', async () => {
    const organization = await service.signUp();
    await service.query(organization, 'CREATE TABLE notes ()');
    const [here, there] = [await service.connect(organization), await other.connect(organization)];
    await there.query('BEGIN; LOCK TABLE notes');
    const ends = [here, there].map(async (client) => (await once(client, 'error'))[0]);
    const body = { confirm: organization.id };
    const reply = await service.call('DELETE', '/api/organization', { key: organization.apiKey, body });
    expect([reply.status, reply.body]).toEqual([200, { organizationId: organization.id, status: 'dropped' }]);
    for (const end of ends) expect(await end).toMatchObject({ severity: 'FATAL', code: '57P01' });
    for (const at of [service, other]) {
      expect((await at.query(organization, 'SELECT 1')).status).toBe(401);
      await expect(at.connect(organization)).rejects.toMatchObject({ code: '28P01' });
    }
    const again = await service.call('DELETE', '/api/organization', { key: organization.apiKey, body });
    expect([again.status, again.body.code]).toEqual([401, 'unauthorized']);
    const prefix = organization.apiKey.slice(0, 10);
    await eventually('the call is recorded', async () => (await actionsOf(organization)).includes(`organization.delete ${prefix} ok`));
    const actions = await actionsOf(organization);
    expect(actions).toEqual(expect.arrayContaining([`organization.dropping ${prefix} ok`, `organization.dropped ${prefix} ok`]));
    const signUp = { orgName: 'Again', email: organization.email };
    expect((await service.call('POST', '/api/auth/signup', { body: signUp })).status).toBe(201);
  });
});
