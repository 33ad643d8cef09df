import { randomBytes } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
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

async function newInvitation(email?: string): Promise<Buffer> {
  const digest = randomBytes(32);
  await opened.catalog.signUps.invite({ digest, email, expiresAt: new Date(Date.now() + 60_000) });
  return digest;
}

describe('an invitation', () => {
  test('lets one of several sign-ups through, however fast they come, and in whichever process', async () => {
    const other = await openCatalog(database);
    const invitation = await newInvitation();
    const signUps = [opened, other, opened, other].map(({ catalog }) => catalog.signUps.record(newSignUp({ invitation }), ORIGIN));
    const results = await Promise.allSettled(signUps);
    expect(results.map(({ status }) => status).sort()).toEqual(['fulfilled', 'rejected', 'rejected', 'rejected']);
    for (const result of results) if (result.status === 'rejected') expect(result.reason).toMatchObject({ kind: 'invite_invalid' });
    await other.catalog.close();
  });

  test('is not used up by a sign-up that is refused or undone', async () => {
    const invitation = await newInvitation();
    const taken = newSignUp();
    await opened.catalog.signUps.record(taken, ORIGIN);
    const refused = opened.catalog.signUps.record(newSignUp({ email: taken.email, invitation }), ORIGIN);
    await expect(refused).rejects.toMatchObject({ kind: 'email_taken' });

    const undone = newSignUp({ invitation });
    await opened.catalog.signUps.record(undone, ORIGIN);
    await opened.catalog.signUps.delete(undone.id);
    const kept = newSignUp({ invitation });
    await opened.catalog.signUps.record(kept, ORIGIN);
    await opened.catalog.signUps.activate(kept.id, ORIGIN);
    await opened.catalog.signUps.delete(kept.id);
    await expect(opened.catalog.signUps.record(newSignUp({ invitation }), ORIGIN)).rejects.toMatchObject({ kind: 'invite_invalid' });
  });

  test('may be for one address, in whatever case', async () => {
    const invitation = await newInvitation('Jane@Acme.Test');
    await expect(opened.catalog.signUps.record(newSignUp({ invitation }), ORIGIN)).rejects.toMatchObject({ kind: 'invite_invalid' });
    await opened.catalog.signUps.record(newSignUp({ email: 'jane@acme.test', invitation }), ORIGIN);
  });

  test('expires, and does not count among those that are open any more', async () => {
    const invitation = await newInvitation();
    await database.query(`
      insert into postern.invitations (digest, created_at, expires_at)
      select sha256(n::text::bytea), now(), now() + interval '60 s' from generate_series(1, 10000) n`);
    await expect(newInvitation()).rejects.toMatchObject({ kind: 'invalid_request' });
    opened.clock.offsetMs = 61_000;
    await expect(opened.catalog.signUps.record(newSignUp({ invitation }), ORIGIN)).rejects.toMatchObject({ kind: 'invite_invalid' });
    await opened.catalog.signUps.invite({ digest: randomBytes(32), expiresAt: new Date(Date.now() + 120_000) });
    expect(await database.query('select count(*)::int as count from postern.invitations')).toEqual([{ count: 1 }]);
  });
});
