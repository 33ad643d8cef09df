import { once } from 'node:events';
import pg from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { WebSocket } from 'ws';
import { createdKeyReply, key as keySchema, keysReply, rotateKeyReply } from '../../http/reply-schemas.ts';
import type { JsonReply, TestOrganization } from '../support/doors.ts';
import { eventually } from '../support/eventually.ts';
import { openSession, queryMessage } from '../support/raw-session.ts';
import { startTestService, type TestService } from '../support/service.ts';

let service: TestService;
let acme: TestOrganization;
beforeAll(async () => {
  service = await startTestService({ POSTERN_TRUST_PROXY: '127.0.0.1/32' });
  acme = await service.signUp();
});
afterAll(() => service.close());

const call = (method: string, path: string, body?: unknown, { apiKey: key } = acme): Promise<JsonReply> =>
  service.call(method, path, { key, ...(body === undefined ? {} : { body }) });

/** The organization with another key. */
const withKey = (apiKey: string, { id, orgName, email } = acme): TestOrganization => ({ id, orgName, email, apiKey });

async function make(details: object = {}, organization = acme): Promise<{ organization: TestOrganization; keyId: string }> {
  const { status, body } = await call('POST', '/api/keys', { name: 'test', scope: 'write', ...details }, organization);
  expect(status, JSON.stringify(body)).toBe(201);
  return { organization: withKey(body.apiKey, organization), keyId: body.keyId };
}

/** A COPY that waits for data. Resolves with the error that ends it. */
function copyFrom(client: pg.Client): Promise<unknown> {
  return new Promise((resolve) => {
    const submittable = {
      submit: (connection: pg.Connection) => connection.query('COPY copied FROM STDIN'),
      handleCopyInResponse: () => {},
      handleError: resolve,
      handleReadyForQuery: () => {},
    };
    client.query(submittable as unknown as pg.Submittable);
  });
}

/** Logs in by a WebSocket. @returns in an array, because it is not to be awaited yet: what has come when it is closed */
async function openWebSocket({ id, apiKey }: TestOrganization): Promise<Promise<string>[]> {
  const webSocket = new WebSocket(`${service.httpUrl.replace('http:', 'ws:')}/v2`);
  const chunks: Buffer[] = [];
  webSocket.on('message', (data: Buffer) => chunks.push(data));
  const heard = () => Buffer.concat(chunks).toString('latin1');
  await once(webSocket, 'open');
  const counted = (type: string, body: string) => {
    const length = Buffer.alloc(4);
    length.writeInt32BE(body.length + 4);
    return Buffer.concat([Buffer.from(type), length, Buffer.from(body, 'latin1')]);
  };
  webSocket.send(counted('', `\0\x03\0\0user\0${id}\0database\0${id}\0\0`));
  webSocket.send(counted('p', `${apiKey}\0`));
  await eventually('it is logged in', () => heard().includes('Z\0\0\0\x05I'));
  return [once(webSocket, 'close').then(heard)];
}

/** How many sessions and requests run such a statement. */
async function numberOf(sql: RegExp): Promise<number> {
  const { body } = await call('GET', '/api/sessions');
  return body.sessions.filter(({ statement }: { statement: { sql: string } | null }) => sql.test(statement?.sql ?? '')).length;
}

const lastWordsOf = async (client: pg.Client) => (await once(client, 'error'))[0];

describe('a key', () => {
  it('is made with a name, a scope, an expiry and networks, and says so of itself', async () => {
    const wanted = {
      name: ' nightly job ',
      scope: 'write',
      expiresAt: '2100-01-01T01:00:00+01:00',
      networks: ['127.0.0.9/8', '2001:db8::1'],
    };
    const { status, body } = await call('POST', '/api/keys', wanted);
    expect(status).toBe(201);
    const { apiKey, ...key } = createdKeyReply.strict().parse(body);
    expect(key).toMatchObject({
      prefix: apiKey.slice(0, 10),
      name: 'nightly job',
      scope: 'write',
      expiresAt: '2100-01-01T00:00:00.000Z',
      networks: ['127.0.0.0/8', '2001:db8::1/128'],
      createdBy: expect.stringMatching(/^key_/),
    });
    const { body: me } = await call('GET', '/api/auth/me', undefined, withKey(apiKey));
    expect(keySchema.strict().parse(me.key)).toMatchObject({ ...key, lastUsedAt: me.key.lastUsedAt });
    const listed = keysReply.strict().parse((await call('GET', '/api/keys')).body).keys;
    expect(listed.map(({ name }) => name)).toEqual(['first key', 'nightly job']);
    expect(listed[0]).toMatchObject({ keyId: key.createdBy, scope: 'admin', createdBy: null, expiresAt: null, networks: null });
    expect(JSON.stringify(listed)).not.toContain(apiKey);
  });

  it('logs in at every door under the one name of the organization', async () => {
    const { organization } = await make();
    const client = await service.connect(organization);
    expect((await client.query('SELECT session_user')).rows).toEqual([{ session_user: acme.id }]);
    await client.end();
    expect((await service.query(organization, 'SELECT 1 AS one')).body.rows).toEqual([{ one: 1 }]);
    const connectionString = `postgres://${acme.id}:${organization.apiKey}@localhost/${acme.id}`;
    const options = { headers: { 'neon-connection-string': connectionString }, body: { query: 'SELECT 1 AS one', params: [] } };
    expect((await service.call('POST', '/sql', options)).status).toBe(200);
  });

  it('of the scope write runs SQL, and neither manages keys nor reads the audit log', async () => {
    const { organization, keyId } = await make();
    expect((await service.query(organization, 'CREATE TABLE written (id int)')).status).toBe(200);
    const refused = [
      ['POST', '/api/keys', { name: 'mine', scope: 'admin' }],
      ['GET', '/api/keys'],
      ['PATCH', `/api/keys/${keyId}`, { networks: null }],
      ['DELETE', `/api/keys/${keyId}`],
      ['POST', `/api/keys/${keyId}/rotate`],
      ['POST', '/api/auth/rotate-key'],
      ['GET', '/api/audit'],
      ['GET', '/api/audit/verify'],
    ] as const;
    for (const [method, path, body] of refused) {
      const reply = await call(method, path, body, organization);
      expect([path, reply.status, reply.body.code, reply.body.sqlstate]).toEqual([path, 403, 'forbidden', '42501']);
    }
    expect((await call('GET', '/api/auth/me', undefined, organization)).body.key).toMatchObject({ keyId, scope: 'write' });
  });

  it.each([
    ['an unknown scope', { name: 'a', scope: 'root' }],
    ['no name', { name: ' ', scope: 'write' }],
    ['a name that looks like another', { name: 'a\u200bb', scope: 'write' }],
    ['a name whose letters run backwards', { name: 'a\u202eb', scope: 'write' }],
    ['an expiry that is past', { name: 'a', scope: 'write', expiresAt: '2020-01-01T00:00:00Z' }],
    ['a network that is none', { name: 'a', scope: 'write', networks: ['10.0.0.0/33'] }],
    ['no network at all', { name: 'a', scope: 'write', networks: [] }],
  ])('is not made with %s', async (_what, body) => {
    expect(await call('POST', '/api/keys', body)).toMatchObject({ status: 400, body: { code: 'invalid_request' } });
  });

  it('of another organization does not exist', async () => {
    const other = await service.signUp();
    const { keyId } = await make({}, other);
    const replies = [
      await call('DELETE', `/api/keys/${keyId}`),
      await call('PATCH', `/api/keys/${keyId}`, { name: 'mine' }),
      await call('POST', `/api/keys/${keyId}/rotate`),
      await call('DELETE', '/api/keys/key_000000000000'),
    ];
    expect(replies.map(({ status, body }) => [status, body.code])).toEqual(Array(4).fill([404, 'not_found']));
    expect(await call('PUT', `/api/keys/${keyId}`)).toMatchObject({ status: 405 });
    expect(await call('GET', '/api/keys/a/b/c')).toMatchObject({ status: 404 });
  });

  it('is one of at most a hundred, each of which logs in', async () => {
    const many = await service.signUp();
    const made: Awaited<ReturnType<typeof make>>[] = [];
    // On a slow machine the control database would not answer all of them in time if they came at once.
    while (made.length < 99) made.push(...(await Promise.all(Array.from({ length: 9 }, () => make({}, many)))));
    expect(await call('POST', '/api/keys', { name: 'one more', scope: 'write' }, many)).toMatchObject({
      status: 409,
      body: { code: 'too_many_keys' },
    });
    for (const { organization } of made) await (await service.connect(organization)).end();
    await expect(service.connect(withKey(`${many.apiKey}x`, many))).rejects.toMatchObject({ code: '28P01' });
    for (const { keyId } of made) await call('DELETE', `/api/keys/${keyId}`, undefined, many);
    await (await service.connect(many)).end();
  });
});

describe('a key that is revoked', () => {
  it('ends its sessions, and those of others go on', async () => {
    const { organization, keyId } = await make();
    const [ending, staying] = [await service.connect(organization), await service.connect(acme)];
    const running = service.query(organization, 'SELECT pg_sleep(60)');
    const end = lastWordsOf(ending);
    await eventually('it runs', async () => (await numberOf(/^SELECT pg_sleep/)) === 1);
    const { status, body } = await call('DELETE', `/api/keys/${keyId}`);
    expect([status, body.keyId]).toEqual([200, keyId]);
    expect(await end).toMatchObject({ severity: 'FATAL', code: '57P01', message: 'terminating connection due to API key revocation' });
    expect(await running).toMatchObject({ status: 401, body: { code: 'key_revoked' } });
    const message = `this API key was revoked at ${body.revokedAt}`;
    expect(await service.query(organization, 'SELECT 1')).toMatchObject({ status: 401, body: { detail: message } });
    await expect(service.connect(organization)).rejects.toMatchObject({ code: '28P01', message });
    expect((await staying.query('SELECT 1 AS one')).rows).toEqual([{ one: 1 }]);
    await staying.end();
  });

  it('ends what streams, copies, listens and comes by WebSocket', async () => {
    const { organization, keyId } = await make();
    await service.query(acme, 'CREATE TABLE copied (body text)');
    const clients = await Promise.all([1, 2, 3, 4].map(() => service.connect(organization)));
    const [listening, copyingOut, stalling, copyingIn] = clients as [pg.Client, pg.Client, pg.Client, pg.Client];
    await listening.query('LISTEN news');
    const rows = "SELECT repeat('x', 1000), generate_series(1, 100000000)";
    // PostgreSQL sends 8 kB of the row, and the rest when there is more.
    const stalls = "SELECT repeat('x', 9000), pg_sleep(0) UNION ALL SELECT '', pg_sleep(60)";
    const heard = [
      lastWordsOf(listening),
      ...[copyingOut.query(`COPY (${rows}) TO STDOUT`), stalling.query(`COPY (${stalls}) TO STDOUT`)].map((copy) =>
        copy.catch((error: unknown) => error),
      ),
      copyFrom(copyingIn),
    ];
    const deaf = await openSession(service, organization);
    deaf.pause();
    await deaf.write(queryMessage(`COPY (${rows}) TO STDOUT`));
    const [webSocket] = await openWebSocket(organization);
    const stream = await fetch(`${service.httpUrl}/api/query`, {
      method: 'POST',
      headers: { authorization: `Bearer ${organization.apiKey}`, 'content-type': 'application/json', accept: 'application/x-ndjson' },
      body: JSON.stringify({ sql: rows }),
    });
    const reader = stream.body?.getReader();
    expect(Buffer.from((await reader?.read())?.value ?? []).toString()).toContain('{"fields"');
    await eventually('all are at work', async () => (await numberOf(/^copy/i)) === 4);

    await call('DELETE', `/api/keys/${keyId}`);
    // Between the rows of a COPY there is a place for the error, but for him who does not read.
    for (const last of await Promise.all(heard)) expect(last).toMatchObject({ code: '57P01' });
    await eventually('the COPY that nobody reads has ended', async () => (await numberOf(/^copy/i)) === 0);
    deaf.disconnect();
    expect(await webSocket).toContain('C57P01\0Mterminating connection due to API key revocation');
    let end = '';
    for (let piece = await reader?.read(); piece?.value !== undefined; piece = await reader?.read())
      end = (end + Buffer.from(piece.value).toString()).slice(-2_000);
    expect(JSON.parse(end.trimEnd().split('\n').at(-1) ?? '')).toMatchObject({ error: { code: 'key_revoked' } });
  });

  it('is not the only admin key that does not expire', async () => {
    const { body } = await call('GET', '/api/auth/me');
    const own = `/api/keys/${body.key.keyId}`;
    expect(await call('DELETE', own)).toMatchObject({ status: 403, body: { code: 'forbidden' } });
    const other = await make({ scope: 'admin', expiresAt: '2100-01-01T00:00:00Z' });
    expect(await call('DELETE', own)).toMatchObject({ status: 403 });
    for (const change of [{ expiresAt: '2100-01-01T00:00:00Z' }, { networks: ['203.0.113.0/24'] }]) {
      const refused = await call('PATCH', own, change);
      expect(refused).toMatchObject({
        status: 409,
        body: { code: 'last_admin_key', hint: expect.stringContaining('another admin key first') },
      });
    }
    expect((await call('PATCH', own, { networks: ['127.0.0.0/8'] })).status).toBe(200);
    expect((await call('PATCH', own, { networks: null })).status).toBe(200);
    const second = await make({ scope: 'admin', networks: ['203.0.113.0/24'] });
    expect((await call('PATCH', own, { networks: ['203.0.113.0/24'] })).status).toBe(409);
    expect((await call('PATCH', `/api/keys/${second.keyId}`, { networks: null })).status).toBe(200);
    expect((await call('PATCH', own, { expiresAt: '2100-01-01T00:00:00Z' })).status).toBe(200);
    expect((await call('PATCH', own, { expiresAt: null })).status).toBe(200);
    await call('DELETE', `/api/keys/${second.keyId}`);
    await call('DELETE', `/api/keys/${other.keyId}`);
  });

  it('stands in the audit log, as do all changes, with the key that asked', async () => {
    const { keyId } = await make({ name: "it's" });
    await call('PATCH', `/api/keys/${keyId}`, { name: 'renamed' });
    await call('DELETE', `/api/keys/${keyId}`);
    const { body: me } = await call('GET', '/api/auth/me');
    const { body } = await call('GET', '/api/audit?limit=100');
    const actions = ['keys.revoke', 'keys.update', 'keys.create'];
    const entries = body.data.filter(({ statement }: { statement?: { sql: string } }) => statement?.sql.includes(keyId));
    expect(entries.map(({ action, statement }: { action: string; statement: { sql: string } }) => [action, statement.sql])).toEqual([
      [actions[0], `DROP KEY ${keyId} NAME 'renamed' SCOPE write`],
      [actions[1], `ALTER KEY ${keyId} NAME 'renamed' SCOPE write`],
      [actions[2], `CREATE KEY ${keyId} NAME 'it''s' SCOPE write`],
    ]);
    for (const { actor } of entries) expect(actor).toEqual({ keyId: me.key.keyId, keyPrefix: me.key.prefix });
  });
});

describe('a key with an expiry', () => {
  it('ends by itself, with its sessions, at the time that it was changed to', async () => {
    const { organization, keyId } = await make({ expiresAt: '2100-01-01T00:00:00Z' });
    const session = await service.connect(organization);
    const end = lastWordsOf(session);
    const expiresAt = new Date(Date.now() + 5_000).toISOString();
    expect((await call('PATCH', `/api/keys/${keyId}`, { expiresAt })).body.expiresAt).toBe(expiresAt);
    expect((await session.query('SELECT 1 AS one')).rows).toEqual([{ one: 1 }]);
    expect(await end).toMatchObject({ code: '57P01', message: 'terminating connection due to API key expiry' });
    const message = `this API key expired at ${expiresAt}`;
    expect(await service.query(organization, 'SELECT 1')).toMatchObject({ status: 401, body: { detail: message } });
    await expect(service.connect(organization)).rejects.toMatchObject({ code: '28P01', message });
    expect((await call('GET', '/api/keys')).body.keys.map((key: { keyId: string }) => key.keyId)).not.toContain(keyId);
    expect(await call('PATCH', `/api/keys/${keyId}`, { expiresAt: null })).toMatchObject({ status: 404 });
  });
});

describe('a key with networks', () => {
  it('is refused elsewhere, at every door, and its sessions end when they change', async () => {
    const { organization, keyId } = await make({ networks: ['203.0.113.0/24'] });
    const from = (address: string) =>
      service.call('POST', '/api/query', {
        key: organization.apiKey,
        body: { sql: 'SELECT 1 AS one' },
        headers: { 'x-forwarded-for': address },
      });
    expect((await from('203.0.113.7')).status).toBe(200);
    expect((await from('::ffff:203.0.113.7')).status).toBe(200);
    for (const address of ['203.0.114.7', '2001:db8::1', 'unknown'])
      expect(await from(address)).toMatchObject({ status: 403, body: { code: 'not_allowed' } });
    expect(await call('GET', '/api/auth/me', undefined, organization)).toMatchObject({ status: 403 });
    await expect(service.connect(organization)).rejects.toMatchObject({
      code: '28000',
      message: 'this API key may not be used from 127.0.0.1',
    });

    await call('PATCH', `/api/keys/${keyId}`, { networks: ['203.0.113.0/24', '127.0.0.1'] });
    const session = await service.connect(organization);
    await call('PATCH', `/api/keys/${keyId}`, { name: 'another name' });
    expect((await session.query('SELECT 1 AS one')).rows).toEqual([{ one: 1 }]);
    const end = lastWordsOf(session);
    await call('PATCH', `/api/keys/${keyId}`, { networks: ['203.0.113.0/24'] });
    expect(await end).toMatchObject({ code: '57P01', message: 'terminating connection due to API key networks that have changed' });
    expect((await from('127.0.0.1')).status).toBe(403);
    expect((await from('203.0.113.7')).status).toBe(200);
  });
});

describe('rotation with a grace period', () => {
  it('leaves the old key valid beside the new one, which says so in a header and a notice, and then ends it', async () => {
    const { organization: old, keyId } = await make({ networks: ['127.0.0.1'] });
    const session = await service.connect(old);
    const end = lastWordsOf(session);
    const { status, body } = await call('POST', `/api/keys/${keyId}/rotate`, { graceSeconds: 20 });
    expect(status).toBe(200);
    const rotated = rotateKeyReply.strict().parse(body);
    expect(rotated).toMatchObject({ organizationId: acme.id, previousKey: { keyId } });
    const graceMs = Date.parse(rotated.previousKey.invalidatedAt) - Date.parse(rotated.rotatedAt);
    expect(graceMs).toBeGreaterThan(19_500);

    const notice = `${rotated.keyId}; until="${rotated.previousKey.invalidatedAt}"`;
    const connectionString = `postgres://${acme.id}:${old.apiKey}@localhost/${acme.id}`;
    const replies = [
      await service.query(old, 'SELECT 1'),
      await service.query(old, 'SELECT wrong'),
      await call('GET', '/api/auth/me', undefined, old),
      await service.call('POST', '/sql', {
        headers: { 'neon-connection-string': connectionString },
        body: { query: 'SELECT 1', params: [] },
      }),
    ];
    expect(replies.map(({ headers }) => headers.get('api-key-replaced-by'))).toEqual(Array(4).fill(notice));
    expect(replies[2]?.body.key).toMatchObject({ keyId, replacedBy: rotated.keyId, expiresAt: rotated.previousKey.invalidatedAt });
    const told = new pg.Client({ host: '127.0.0.1', port: service.wirePort, user: acme.id, database: acme.id, password: old.apiKey });
    const notices: unknown[] = [];
    told.on('notice', (notice) => notices.push(notice));
    await told.connect();
    await told.end();
    const until = `this API key has been rotated and ends at ${rotated.previousKey.invalidatedAt}`;
    expect(notices).toMatchObject([{ severity: 'NOTICE', code: '01P01', message: until, hint: `Use the new key, ${rotated.keyId}.` }]);

    const renewed = withKey(rotated.apiKey);
    expect((await service.query(renewed, 'SELECT 1')).headers.get('api-key-replaced-by')).toBeNull();
    expect((await call('GET', '/api/auth/me', undefined, renewed)).body.key).toMatchObject({ name: 'test', networks: ['127.0.0.1/32'] });
    expect(await call('POST', `/api/keys/${keyId}/rotate`, { graceSeconds: 20 })).toMatchObject({
      status: 403,
      body: { code: 'forbidden' },
    });
    for (const expiresAt of [null, '2100-01-01T00:00:00Z']) {
      expect(await call('PATCH', `/api/keys/${keyId}`, { expiresAt })).toMatchObject({ status: 403, body: { code: 'forbidden' } });
    }
    expect((await call('PATCH', `/api/keys/${keyId}`, { name: 'old' })).status).toBe(200);

    expect(await end).toMatchObject({ code: '57P01', message: 'terminating connection due to API key rotation' });
    const message = `this API key was rotated at ${rotated.previousKey.invalidatedAt}`;
    await expect(service.connect(old)).rejects.toMatchObject({ code: '28P01', message });
    await (await service.connect(renewed)).end();
  });

  it('is what rotate-key takes too, under load without one failed login', async () => {
    const rotating = await service.signUp();
    let apiKey = rotating.apiKey;
    let isOver = false;
    let logins = 0;
    const keepLoggingIn = async () => {
      while (!isOver) {
        const client = await service.connect(withKey(apiKey, rotating));
        await client.query('SELECT 1');
        await client.end();
        expect((await service.query(withKey(apiKey, rotating), 'SELECT 1')).status).toBe(200);
        logins += 1;
      }
    };
    const load = Promise.all(Array.from({ length: 8 }, keepLoggingIn));
    for (let rotations = 0; rotations < 5; rotations += 1) {
      const before = logins;
      const reply = await call('POST', '/api/auth/rotate-key', { graceSeconds: 60 }, withKey(apiKey, rotating));
      expect(reply.status).toBe(200);
      await eventually('the old key is still in use', async () => logins > before + 8);
      apiKey = reply.body.apiKey;
    }
    isOver = true;
    await load;
    expect(logins).toBeGreaterThan(40);
  });
});
