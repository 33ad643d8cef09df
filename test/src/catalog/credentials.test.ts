import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, inject, test, vi } from 'vitest';
import type { Catalog } from '../../../src/catalog/catalog.ts';
import type { ControlConnection } from '../../../src/catalog/control-pool.ts';
import type { Credential, FormerKey } from '../../../src/catalog/credentials.ts';
import type { NewApiKey } from '../../../src/catalog/key-rows.ts';
import { NO_LIMITS } from '../../../src/catalog/limits.ts';
import { makePostgresProxy } from '../../support/postgres-proxy.ts';
import { newKey, newOrganization, ORIGIN, openCatalog, type TestCatalog, TestControlDatabase } from './control-database.ts';

let database: TestControlDatabase;
/** Two processes on one control database. */
let here: TestCatalog;
let there: TestCatalog;

beforeAll(async () => {
  database = await TestControlDatabase.create();
});

beforeEach(async () => {
  [here, there] = await Promise.all([openCatalog(database), openCatalog(database)]);
});

afterEach(async () => {
  await Promise.all([here.catalog.close(), there.catalog.close()]);
});

afterAll(async () => {
  await database.drop();
});

async function known(credential: Promise<Credential | FormerKey | undefined>): Promise<Credential> {
  const found = await credential;
  if (found === undefined || 'endedAt' in found) throw new Error('not found');
  return found;
}

/** What is known of a key that was replaced. */
function formerKey(organization: { readonly id: string }, { id, prefix }: NewApiKey): FormerKey {
  return { id, prefix, organizationId: organization.id, end: 'rotated', endedAt: expect.any(Date) };
}

/** A change that is made with a key. */
const by = ({ id }: { readonly id: string }, actorKeyId: string) => ({ organizationId: id, actorKeyId, origin: ORIGIN });

/** The organization's only key. */
async function onlyKey(catalog: Catalog, organizationId: string): Promise<Credential | undefined> {
  return (await catalog.findByOrganization(organizationId))?.live[0];
}

async function reasonOf({ revoked }: Credential): Promise<unknown> {
  if (!revoked.aborted) await once(revoked, 'abort');
  return revoked.reason;
}

describe('a credential', () => {
  test('is found by the digest of its key and by its organization, as one object', async () => {
    const { organization, key } = await newOrganization(here.catalog);
    const credential = await known(there.catalog.findByDigest(key.digest));
    expect(credential).toMatchObject({ organization, key: { id: key.id, prefix: key.prefix, verifier: key.verifier, lastUsedAt: null } });
    expect(credential.revoked.aborted).toBe(false);
    expect(await onlyKey(there.catalog, organization.id)).toBe(credential);
    expect(await there.catalog.findByDigest(key.digest)).toBe(credential);
    const atOnce = await Promise.all([1, 2, 3].map(() => here.catalog.findByDigest(key.digest)));
    expect(new Set(atOnce).size).toBe(1);
  });

  test('is answered from memory: also while the control database is away', async () => {
    const { organization, key } = await newOrganization(here.catalog);
    const credential = await known(here.catalog.findByDigest(key.digest));
    await database.query(`update postern.api_keys set prefix = 'changed' where id = $1`, [key.id]);
    expect(await onlyKey(here.catalog, organization.id)).toBe(credential);
    expect((await known(here.catalog.findByDigest(key.digest))).key.prefix).toBe(key.prefix);
  });

  test('that does not exist is not found', async () => {
    expect(await here.catalog.findByDigest(newKey().digest)).toBeUndefined();
    for (const id of ['org_000000000000', 'postgres', '', 'org_\0', 'x'.repeat(10_000)]) {
      expect(await here.catalog.findByOrganization(id)).toBeUndefined();
    }
  });
});

describe('rotation', () => {
  test('kills the old key in this process before it returns', async () => {
    const { organization, key } = await newOrganization(here.catalog);
    const old = await known(here.catalog.findByDigest(key.digest));
    const next = newKey();
    const rotated = await here.catalog.keys.rotate(by(organization, key.id), key.id, next);
    expect(old.revoked.reason).toMatchObject({
      kind: 'key_revoked',
      sqlstate: '57P01',
      message: 'terminating connection due to API key rotation',
    });
    expect(rotated).toMatchObject({ key: { id: next.id, organizationId: organization.id }, previous: { id: key.id, prefix: key.prefix } });
    expect(await here.catalog.findByDigest(key.digest)).toEqual(formerKey(organization, key));
    expect((await known(here.catalog.findByDigest(next.digest))).key).toEqual(rotated.key);
    expect((await onlyKey(here.catalog, organization.id))?.key.id).toBe(next.id);
  });

  test('kills the old key in another process, and leaves the new one alone', async () => {
    const { organization, key } = await newOrganization(here.catalog);
    const old = await known(there.catalog.findByDigest(key.digest));
    const next = newKey();
    await here.catalog.keys.rotate(by(organization, key.id), key.id, next);
    expect(await reasonOf(old)).toMatchObject({ kind: 'key_revoked' });
    expect(await there.catalog.findByDigest(key.digest)).toEqual(formerKey(organization, key));
    const credential = await known(there.catalog.findByDigest(next.digest));

    // A credential loaded just after a rotation outlives the notification about it.
    const third = newKey();
    await there.catalog.keys.rotate(by(organization, next.id), next.id, third);
    const loaded = await known(there.catalog.findByDigest(third.digest));
    await here.catalog.organizations.setStatus((await newOrganization(here.catalog)).organization.id, 'suspended', ORIGIN);
    expect(await reasonOf(credential)).toMatchObject({ kind: 'key_revoked' });
    expect(loaded.revoked.aborted).toBe(false);
    expect(await onlyKey(there.catalog, organization.id)).toBe(loaded);
  });

  test('keeps the last few former keys, which open nothing; those with the live key’s salt are recognized in a login', async () => {
    const { organization, key: first } = await newOrganization(here.catalog);
    const { salt } = first.verifier;
    const keys = [first];
    for (let rotations = 0; rotations < 8; rotations += 1) {
      const made = newKey();
      // A key of another salt, as it was made by earlier versions.
      const key = rotations === 5 ? made : { ...made, verifier: { ...made.verifier, salt } };
      here.clock.offsetMs += 1_000;
      await here.catalog.keys.issue(organization.id, key, ORIGIN);
      keys.push(key);
    }
    const found = await Promise.all(keys.map(({ digest }) => there.catalog.findByDigest(digest)));
    expect(found.slice(0, 3)).toEqual([undefined, undefined, undefined]);
    expect(found.slice(3, 8)).toEqual(keys.slice(3, 8).map((key) => formerKey(organization, key)));
    const { live, former } = (await there.catalog.findByOrganization(organization.id)) ?? { former: [], live: [] };
    expect(live.map(({ key }) => key.id)).toEqual([keys[8]?.id]);
    const provable = [7, 5, 4, 3].map((n) => keys[n]);
    expect(former.map(({ id, storedKey }) => [id, storedKey])).toEqual(provable.map((one) => [one?.id, one?.verifier.storedKey]));
    expect(former.map(({ endedAt }) => endedAt)).toEqual(former.map(({ endedAt }) => endedAt).sort((a, b) => +b - +a));
  });

  test('needs the live key, and of two at once one wins', async () => {
    const { organization, key } = await newOrganization(here.catalog);
    const results = await Promise.allSettled([
      here.catalog.keys.rotate(by(organization, key.id), key.id, newKey()),
      there.catalog.keys.rotate(by(organization, key.id), key.id, newKey()),
    ]);
    expect(results.map(({ status }) => status).sort()).toEqual(['fulfilled', 'rejected']);
    await expect(here.catalog.keys.rotate(by(organization, key.id), key.id, newKey())).rejects.toMatchObject({ kind: 'unauthorized' });
    await here.catalog.keys.issue(organization.id, newKey(), ORIGIN);
    await expect(here.catalog.keys.issue('org_nobody', newKey(), ORIGIN)).rejects.toMatchObject({ kind: 'not_found' });
    const { data } = await here.catalog.audit.list(organization.id);
    expect(data.slice(0, 2)).toMatchObject([
      { seq: 3, action: 'key.issued', actor: { keyId: null, keyPrefix: null } },
      { seq: 2, action: 'auth.rotate_key', actor: { keyId: key.id, keyPrefix: key.prefix } },
    ]);
  });

  test('that may have happened is not reported as failed when the service stops meanwhile', async () => {
    const proxy = await makePostgresProxy(inject('clusterUrl'));
    const { connection } = database;
    const far = await openCatalog(database, { connection: { ...connection, host: decodeURIComponent(new URL(proxy.url).hostname) } });
    const { organization } = await newOrganization(far.catalog);
    await far.catalog.audit.flush();
    const committed = proxy.holdBackCommit(connection.user);
    const rotated = far.catalog.keys.issue(organization.id, newKey(), ORIGIN);
    const refused = expect(rotated).rejects.toMatchObject({ kind: 'backend_lost' });
    await committed;
    await far.catalog.close();
    await refused;
    await proxy.close();
  });

  test('is seen by a look-up that was on its way', async () => {
    const { organization, key } = await newOrganization(here.catalog);
    // Each look-up starts before the rotation and may end after it.
    const lookups = Array.from({ length: 50 }, () => onlyKey(there.catalog, organization.id));
    const next = newKey();
    await here.catalog.keys.rotate(by(organization, key.id), key.id, next);
    for (const credential of await Promise.all(lookups)) {
      if (credential?.key.id === key.id) expect(await reasonOf(credential)).toMatchObject({ kind: 'key_revoked' });
    }
    await expect.poll(async () => (await onlyKey(there.catalog, organization.id))?.key.id).toBe(next.id);
  });
});

describe('suspension', () => {
  test('ends open sessions in every process, gives new logins the reason, and can be undone', async () => {
    const { organization, key } = await newOrganization(here.catalog);
    const before = [await known(here.catalog.findByDigest(key.digest)), await known(there.catalog.findByDigest(key.digest))];
    await here.catalog.organizations.setStatus(organization.id, 'suspended', ORIGIN);
    for (const credential of before)
      expect(await reasonOf(credential)).toMatchObject({ kind: 'organization_suspended', sqlstate: '28000' });

    const suspended = await known(there.catalog.findByDigest(key.digest));
    expect(suspended.organization.status).toBe('suspended');
    expect(suspended.revoked.reason).toMatchObject({ kind: 'organization_suspended' });

    await here.catalog.organizations.setStatus(organization.id, 'active', ORIGIN);
    const resumed = await known(here.catalog.findByDigest(key.digest));
    expect(resumed.revoked.aborted).toBe(false);
    await expect.poll(async () => (await known(there.catalog.findByDigest(key.digest))).revoked.aborted).toBe(false);
    const { data } = await here.catalog.audit.list(organization.id);
    expect(data.map(({ action }) => action)).toEqual(['organization.active', 'organization.suspended', 'auth.signup']);
  });

  test('an organization that is gone is not found', async () => {
    const { organization, key } = await newOrganization(here.catalog);
    const credential = await known(here.catalog.findByDigest(key.digest));
    await here.catalog.organizations.setStatus(organization.id, 'dropping', ORIGIN);
    expect(credential.revoked.reason).toMatchObject({ kind: 'key_revoked' });
    expect(await here.catalog.findByDigest(key.digest)).toBeUndefined();
    expect(await here.catalog.organizations.list({ status: 'dropping' })).toMatchObject([{ id: organization.id }]);
  });
});

describe('limits', () => {
  test('of those who are logged in change in every process, in the same object', async () => {
    const { organization, key } = await newOrganization(here.catalog);
    const [own, elsewhere] = [await known(here.catalog.findByDigest(key.digest)), await known(there.catalog.findByDigest(key.digest))];
    expect(elsewhere.organization.limits).toEqual(NO_LIMITS);

    const limited = await here.catalog.organizations.setLimits(organization.id, { sessions: 3, diskBytes: 2 ** 40 }, ORIGIN);
    const limits = { ...NO_LIMITS, sessions: 3, diskBytes: 2 ** 40 };
    expect([limited.limits, own.organization.limits]).toEqual([limits, limits]);
    await expect.poll(() => elsewhere.organization.limits).toEqual(limits);
    expect((await known(there.catalog.findByDigest(key.digest))).organization).toBe(elsewhere.organization);
    expect((await here.catalog.organizations.find(organization.id))?.limits).toEqual(limits);

    await there.catalog.organizations.setLimits(organization.id, { diskBytes: null, statementMs: 0 }, ORIGIN);
    await expect.poll(() => own.organization.limits).toEqual({ ...NO_LIMITS, sessions: 3, statementMs: 0 });
    expect([own.revoked.aborted, elsewhere.revoked.aborted]).toEqual([false, false]);
    const { data } = await here.catalog.audit.list(organization.id);
    expect(data.map(({ action }) => action)).toEqual(['organization.limits', 'organization.limits', 'auth.signup']);
  });

  test('are not set for an organization that is gone or being dropped', async () => {
    const { organization } = await newOrganization(here.catalog);
    await here.catalog.organizations.setStatus(organization.id, 'dropping', ORIGIN);
    const refused = here.catalog.organizations.setLimits(organization.id, { sessions: 3 }, ORIGIN);
    await expect(refused).rejects.toMatchObject({ kind: 'invalid_request' });
    await expect(here.catalog.organizations.setLimits('org_000000000000', {}, ORIGIN)).rejects.toMatchObject({ kind: 'not_found' });
  });
});

describe('without notifications', () => {
  test('a rotation is noticed at once by look-ups, and by what is held when they are back', async () => {
    const { organization, key } = await newOrganization(here.catalog);
    const untouched = await newOrganization(here.catalog);
    const old = await known(there.catalog.findByDigest(key.digest));
    const held = await known(there.catalog.findByDigest(untouched.key.digest));

    await database.allowLogins(false);
    await database.terminate('postern notifications');
    await there.observed('service.warning');
    const next = newKey();
    await here.catalog.keys.rotate(by(organization, key.id), key.id, next);
    expect(await there.catalog.findByDigest(key.digest)).toEqual(formerKey(organization, key));
    expect((await known(there.catalog.findByDigest(next.digest))).key.id).toBe(next.id);
    expect(await there.catalog.findByDigest(untouched.key.digest)).toBe(held);

    await database.allowLogins(true);
    expect(await reasonOf(old)).toMatchObject({ kind: 'key_revoked' });
    expect(held.revoked.aborted).toBe(false);
    expect(await there.catalog.findByDigest(untouched.key.digest)).toBe(held);
    expect(await there.catalog.findByDigest(key.digest)).toEqual(formerKey(organization, key));
  });

  test('a rotation during the outage is noticed when notifications are back', async () => {
    const { organization, key } = await newOrganization(here.catalog);
    const old = await known(there.catalog.findByDigest(key.digest));
    await database.allowLogins(false);
    await database.terminate('postern notifications');
    await there.observed('service.warning');
    await here.catalog.keys.rotate(by(organization, key.id), key.id, newKey());
    expect(old.revoked.aborted).toBe(false);
    await database.allowLogins(true);
    expect(await reasonOf(old)).toMatchObject({ kind: 'key_revoked' });
  });

  test('because their connection is dead without having been closed, a rotation is noticed all the same', async () => {
    const network = await freezableNetwork(database.connection);
    const behind = await openCatalog(database, { connection: { ...database.connection, ...network.address } });
    const { organization, key } = await newOrganization(here.catalog);
    const old = await known(behind.catalog.findByDigest(key.digest));
    network.freeze('postern notifications');
    await here.catalog.keys.rotate(by(organization, key.id), key.id, newKey());
    await behind.observed('service.warning');
    expect(await behind.catalog.findByDigest(key.digest)).toEqual(formerKey(organization, key));
    expect(await reasonOf(old)).toMatchObject({ kind: 'key_revoked' });
    await behind.catalog.close();
    await network.close();
  });

  test('once they are back, rotations are heard of again', async () => {
    const { organization, key } = await newOrganization(here.catalog);
    const old = await known(there.catalog.findByDigest(key.digest));
    await database.terminate('postern notifications');
    await here.catalog.keys.rotate(by(organization, key.id), key.id, newKey());
    expect(await reasonOf(old)).toMatchObject({ kind: 'key_revoked' });
    const second = await known(onlyKey(there.catalog, organization.id));
    await here.catalog.keys.issue(organization.id, newKey(), ORIGIN);
    expect(await reasonOf(second)).toMatchObject({ kind: 'key_revoked' });
  });
});

describe('a control database that is away', () => {
  test('is reported as not ready until it is back', async () => {
    const { key } = await newOrganization(here.catalog);
    await database.allowLogins(false);
    await database.terminate('postern notifications');
    await database.terminate('postern control');
    await here.observed('service.warning');
    await expect(here.catalog.findByDigest(key.digest)).rejects.toMatchObject({ sqlstate: '57P03' });
    await expect(here.catalog.ping()).rejects.toMatchObject({ kind: 'not_ready' });
    await database.allowLogins(true);
    await here.catalog.ping();
    expect((await known(here.catalog.findByDigest(key.digest))).key.id).toBe(key.id);
  });
});

describe('the last use of a key', () => {
  test('is written behind, at most once a minute', async () => {
    const { organization, key } = await newOrganization(here.catalog);
    const credential = await known(here.catalog.findByDigest(key.digest));
    const written = async () => {
      const [row] = await database.query<{ at: Date | null }>('select last_used_at as at from postern.api_keys where id = $1', [key.id]);
      return row?.at ?? null;
    };
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    try {
      for (let n = 0; n < 1_000; n++) here.catalog.touchKey(key.id);
      expect(await written()).toBeNull();
      vi.advanceTimersByTime(1_000);
    } finally {
      vi.useRealTimers();
    }
    await expect.poll(written).not.toBeNull();
    const first = await written();
    await expect.poll(() => credential.key.lastUsedAt).toEqual(first);
    here.catalog.touchKey(key.id);
    await here.catalog.close();
    expect(await written()).toEqual(first);
    expect((await onlyKey(there.catalog, organization.id))?.key.lastUsedAt).toEqual(first);
  });

  test('is not lost when the service stops', async () => {
    const { key } = await newOrganization(here.catalog);
    here.catalog.touchKey(key.id);
    await here.catalog.close();
    expect(await database.query('select 1 from postern.api_keys where id = $1 and last_used_at is not null', [key.id])).toHaveLength(1);
  });
});

/** A way to the database on which connections can go silent, chosen by what their startup packet says. */
async function freezableNetwork({ host, port }: ControlConnection) {
  const links: { readonly ends: readonly Socket[]; startup: string }[] = [];
  const server = createServer((client) => {
    const upstream = connect(`${host}/.s.PGSQL.${port}`);
    const link = { ends: [client, upstream], startup: '' };
    links.push(link);
    client.once('data', (packet) => {
      link.startup = packet.toString('latin1');
    });
    client.pipe(upstream).pipe(client);
    for (const end of link.ends) end.on('error', () => {});
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  return {
    address: { host: '127.0.0.1', port: (server.address() as AddressInfo).port },
    freeze: (startup: string) => {
      for (const { ends } of links.filter((link) => link.startup.includes(startup))) {
        for (const end of ends) end.unpipe().pause();
      }
    },
    close: async () => {
      for (const { ends } of links) for (const end of ends) end.destroy();
      await once(server.close(), 'close');
    },
  };
}
