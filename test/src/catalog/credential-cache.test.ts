import { randomBytes } from 'node:crypto';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { CredentialCache, CredentialIndex, type Entry } from '../../../src/catalog/credential-cache.ts';
import type { KeyState, LiveKeys } from '../../../src/catalog/credentials.ts';
import type { ApiKey } from '../../../src/catalog/key-rows.ts';
import { NO_LIMITS } from '../../../src/catalog/limits.ts';

const ORGANIZATION = 'org_a1b2c3d4e5f6';
const bytes = Buffer.alloc(32);

function keyOf(id: string): ApiKey {
  return {
    id,
    organizationId: ORGANIZATION,
    prefix: 'pst_abc',
    name: 'first key',
    scope: 'admin',
    createdAt: new Date(0),
    createdBy: null,
    expiresAt: null,
    networks: null,
    lastUsedAt: null,
    replacedBy: null,
    verifier: { iterations: 4096, salt: bytes, storedKey: bytes, serverKey: bytes },
  };
}

/** What a read of the control database found, at one revision of the organization. */
function found(revision: number, keyId: string, status: 'active' | 'suspended' = 'active'): LiveKeys {
  const placement = { kind: 'database', cluster: 'default', database: ORGANIZATION, schema: 'public', role: ORGANIZATION } as const;
  return {
    organization: {
      id: ORGANIZATION,
      name: 'Acme',
      email: 'a@acme.test',
      status,
      createdAt: new Date(0),
      placement,
      limits: NO_LIMITS,
      diskState: 'within',
    },
    salt: { salt: bytes, iterations: 4096 },
    keys: [{ id: keyId, key: keyOf(keyId), digest: Buffer.from(keyId), version: 1, expiresInMs: null }],
    former: [],
    revision,
    pausedForMs: null,
  };
}

const state = (revision: number, keyId: string, status: KeyState['status'] = 'active'): KeyState => ({
  organizationId: ORGANIZATION,
  revision,
  status,
  keys: [{ id: keyId, version: 1, expiresInMs: null }],
  ended: {},
  placement: undefined,
  limits: undefined,
  diskState: undefined,
  pausedForMs: null,
});

/** Loads that answer when the test says so. */
class Loads {
  readonly answers: ((known: LiveKeys | undefined) => void)[] = [];
  readonly load = () => new Promise<LiveKeys | undefined>((resolve) => this.answers.push(resolve));

  async answer(at: number, known: LiveKeys | undefined): Promise<void> {
    await expect.poll(() => this.answers.length).toBeGreaterThan(at);
    this.answers[at]?.(known);
  }
}

let cache: CredentialCache;
let loads: Loads;
const find = async () => (await cache.findByOrganization(ORGANIZATION, loads.load))?.live[0];

beforeEach(async () => {
  cache = new CredentialCache();
  loads = new Loads();
  await cache.trust(async () => []);
});

afterEach(() => {
  vi.useRealTimers();
});

describe('a look-up', () => {
  test('shares the load of another that is on its way', async () => {
    const both = [find(), find()];
    await loads.answer(0, found(1, 'key_1'));
    const [one, other] = await Promise.all(both);
    expect(one).toBe(other);
    expect(loads.answers).toHaveLength(1);
  });

  test('is repeated when a change is heard of before its answer', async () => {
    const looked = find();
    cache.changed(state(2, 'key_2'));
    await loads.answer(0, found(1, 'key_1'));
    await loads.answer(1, found(2, 'key_2'));
    expect((await looked)?.key.id).toBe('key_2');
  });

  test('is repeated though a change from before that one is heard of behind it', async () => {
    const looked = find();
    cache.changed(state(3, 'key_3'));
    cache.changed(state(2, 'key_2'));
    await loads.answer(0, found(2, 'key_2'));
    await loads.answer(1, found(3, 'key_3'));
    expect((await looked)?.key.id).toBe('key_3');
  });

  test('is not repeated when its answer is from after the change it heard of', async () => {
    const looked = find();
    cache.changed(state(2, 'key_2'));
    await loads.answer(0, found(2, 'key_2'));
    expect((await looked)?.revoked.aborted).toBe(false);
    cache.changed(state(2, 'key_2'));
    expect((await looked)?.revoked.aborted).toBe(false);
  });

  test('is repeated when notifications were lost and came back meanwhile', async () => {
    const looked = find();
    cache.distrust();
    await cache.trust(async () => []);
    await loads.answer(0, found(1, 'key_1'));
    await loads.answer(1, found(2, 'key_2'));
    expect((await looked)?.key.id).toBe('key_2');
  });

  test('whose answer is older than what is known does not bring an old key back', async () => {
    cache.distrust();
    const early = find();
    const late = find();
    await loads.answer(1, found(2, 'key_2'));
    const credential = await late;
    await loads.answer(0, found(1, 'key_1'));
    await loads.answer(2, found(2, 'key_2'));
    expect(await early).toBe(credential);
    expect(credential?.revoked.aborted).toBe(false);
  });

  test('that fails fails alone', async () => {
    await expect(cache.findByOrganization(ORGANIZATION, () => Promise.reject(new Error('away')))).rejects.toThrow('away');
    const looked = find();
    await loads.answer(0, found(1, 'key_1'));
    expect((await looked)?.key.id).toBe('key_1');
  });
});

describe('what is not trusted', () => {
  test('is looked up every time, and stays the same object', async () => {
    const first = find();
    await loads.answer(0, found(1, 'key_1'));
    const credential = await first;
    cache.distrust();
    for (const at of [1, 2]) {
      const again = find();
      await loads.answer(at, found(1, 'key_1'));
      expect(await again).toBe(credential);
    }
  });

  test('ends when it is found to have changed, be it by a look-up or when notifications are back', async () => {
    const first = find();
    await loads.answer(0, found(1, 'key_1'));
    await first;
    cache.distrust();
    const again = find();
    await loads.answer(1, found(2, 'key_2'));
    expect((await first)?.revoked.reason).toMatchObject({ kind: 'key_revoked' });
    await cache.trust(async (ids) => ids.map((organizationId) => ({ ...state(3, 'key_2', 'suspended'), organizationId })));
    expect((await again)?.revoked.reason).toMatchObject({ kind: 'organization_suspended' });
  });

  test('ends when its organization is gone', async () => {
    const first = find();
    await loads.answer(0, found(1, 'key_1'));
    await first;
    cache.distrust();
    await cache.trust(async () => []);
    expect((await first)?.revoked.reason).toMatchObject({ kind: 'key_revoked' });
  });

  test('lives on when nothing that matters has changed', async () => {
    const first = find();
    await loads.answer(0, found(1, 'key_1'));
    await first;
    cache.distrust();
    await cache.trust(async () => [state(3, 'key_1')]);
    expect((await first)?.revoked.aborted).toBe(false);
    const again = find();
    await loads.answer(1, found(3, 'key_1'));
    expect(await again).toBe(await first);
    expect(await find()).toBe(await first);
    expect(loads.answers).toHaveLength(2);
  });

  test('ends when the control database was restored without its last changes, and its present state counts', async () => {
    const first = find();
    await loads.answer(0, found(3, 'key_3'));
    await first;
    cache.distrust();
    await cache.trust(async () => [state(2, 'key_2')]);
    expect((await first)?.revoked.reason).toMatchObject({ kind: 'key_revoked' });
    const second = find();
    await loads.answer(1, found(2, 'key_2'));
    await second;
    cache.distrust();
    const third = find();
    await loads.answer(2, found(2, 'key_2b'));
    expect((await third)?.key.id).toBe('key_2b');
    expect((await second)?.revoked.reason).toMatchObject({ kind: 'key_revoked' });
    const fourth = find();
    await loads.answer(3, found(1, 'key_1'));
    expect((await fourth)?.key.id).toBe('key_1');
  });

  test('is not ended by what was read before something newer was heard of', async () => {
    const first = find();
    await loads.answer(0, found(1, 'key_1'));
    await first;
    cache.distrust();
    const again = await new Promise<ReturnType<typeof find>>((resolve) => {
      void cache.trust(async () => {
        const looked = find();
        await loads.answer(1, found(2, 'key_2'));
        await looked;
        resolve(looked);
        return [state(1, 'key_1')];
      });
    });
    expect(again?.revoked.aborted).toBe(false);
    expect((await find())?.key.id).toBe('key_2');
    expect(loads.answers).toHaveLength(2);
  });

  test('stays so when notifications are lost again while it is being checked', async () => {
    const first = find();
    await loads.answer(0, found(1, 'key_1'));
    await first;
    cache.distrust();
    await cache.trust(async () => {
      cache.distrust();
      return [state(1, 'key_1')];
    });
    const again = find();
    await loads.answer(1, found(1, 'key_1'));
    expect(await again).toBe(await first);
  });
});

describe('an unknown name', () => {
  test('is looked up once within two seconds', async () => {
    vi.useFakeTimers({ toFake: ['performance'] });
    const load = vi.fn(async () => undefined);
    const digest = randomBytes(32);
    for (let n = 0; n < 10; n++) expect(await cache.findByDigest(digest, load)).toBeUndefined();
    expect(load).toHaveBeenCalledTimes(1);
    vi.advanceTimersByTime(2_000);
    await cache.findByDigest(digest, load);
    expect(load).toHaveBeenCalledTimes(2);
  });

  test('is forgotten when there are more than ten thousand', async () => {
    const load = vi.fn(async () => undefined);
    const first = randomBytes(32);
    const last = randomBytes(32);
    await cache.findByDigest(first, load);
    for (let n = 0; n < 10_000; n++) await cache.findByDigest(Buffer.from(`random key ${n}`), load);
    await cache.findByDigest(last, load);
    load.mockClear();
    await cache.findByDigest(last, load);
    expect(load).not.toHaveBeenCalled();
    await cache.findByDigest(first, load);
    expect(load).toHaveBeenCalledOnce();
  });

  test('is looked up again when any organization has changed', async () => {
    const load = vi.fn(async () => undefined);
    await cache.findByOrganization(ORGANIZATION, load);
    cache.changed(state(2, 'key_1'));
    await cache.findByOrganization(ORGANIZATION, load);
    expect(load).toHaveBeenCalledTimes(2);
  });
});

describe('the index', () => {
  function entryOf(id: string): Entry {
    const { organization, salt } = found(1, id);
    const [key, controller, digestName] = [keyOf(id), new AbortController(), `#${id}`];
    const own = { ...organization, id };
    const credential = { organization: own, key, revoked: controller.signal };
    const entry = { credential, key, controller, digestName, version: 1, expiresAt: Number.POSITIVE_INFINITY };
    const keys = new Map([[digestName, entry]]);
    const remains = { names: new Set<string>(), timer: undefined };
    return { organization: own, salt, former: [], keys, revision: 1, isOutdated: false, remains };
  }

  test('releases entries that nothing refers to and that were not looked up recently', async () => {
    setFlagsFromString('--expose-gc');
    const collect: () => void = runInNewContext('gc');
    const index = new CredentialIndex(4);
    for (const name of ['org_held', 'org_1', 'org_2', 'org_3', 'org_4', 'org_5', 'org_6']) index.add(entryOf(name));
    const signal = index.get('org_held')?.keys.get('#org_held')?.credential.revoked;
    for (const name of ['org_3', 'org_4', 'org_5', 'org_6']) index.get(name);

    const known = () => {
      collect();
      return [...index.revisions().keys()].sort();
    };
    await expect.poll(known).toEqual(['org_3', 'org_4', 'org_5', 'org_6', 'org_held']);
    const entry = index.get('org_held')?.keys.get('#org_held');
    expect(entry?.credential.revoked).toBe(signal);
    entry?.controller.abort();
    expect(signal?.aborted).toBe(true);
  });
});
