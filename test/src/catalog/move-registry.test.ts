import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { newMoveToken } from '../../../src/catalog/moves.ts';
import type { Organization, Placement } from '../../../src/catalog/organization.ts';
import { eventually } from '../../support/eventually.ts';
import { newOrganization, ORIGIN, openCatalog, type TestCatalog, TestControlDatabase } from './control-database.ts';

/** Of the process that moves, and of one that serves. */
let database: TestControlDatabase;
let mover: TestCatalog;
let service: TestCatalog;

beforeAll(async () => {
  database = await TestControlDatabase.create();
  [mover, service] = [await openCatalog(database), await openCatalog(database)];
});

afterAll(async () => {
  await mover.catalog.close();
  await service.catalog.close();
  await database.drop();
});

interface Begun {
  readonly organization: Organization;
  readonly to: Placement;
  readonly pause: { readonly organizationId: string; readonly token: string };
}

async function begin({ catalog }: TestCatalog = mover): Promise<Begun> {
  const { organization } = await newOrganization(catalog);
  const to: Placement = { ...organization.placement, kind: 'schema', database: 'postern_shared', schema: organization.id };
  const pause = { organizationId: organization.id, token: newMoveToken() };
  await catalog.moves.begin(organization.id, pause.token, to);
  await catalog.pauses.begin(pause, 60_000);
  return { organization, to, pause };
}

const closeNothing = async () => {};

const isFound = async ({ organization: { id } }: Begun): Promise<boolean> =>
  (await service.catalog.moves.interrupted()).some(({ organizationId }) => organizationId === id);

describe('a move', () => {
  test('is interrupted as long as its mover has no connection for notifications, and can be completed when it has one again', async () => {
    const begun = await begin();
    expect(await isFound(begun)).toBe(false);
    await database.allowLogins(false);
    await database.terminate('postern notifications');
    expect(await isFound(begun)).toBe(true);
    await database.allowLogins(true);
    await eventually('the mover is connected', async () => !(await isFound(begun)));
    expect(await mover.catalog.moves.switch(begun.pause, ORIGIN, closeNothing)).toMatchObject({ placement: begun.to });
  });

  test('that has been aborted cannot switch, and its pause is of who undoes it', async () => {
    const begun = await begin();
    const { id, placement: kept } = begun.organization;
    const aborted = await service.catalog.moves.abort(id, begun.pause.token);
    expect(aborted).toMatchObject({ organizationId: id, copy: begun.to, kept });
    await expect(mover.catalog.moves.switch(begun.pause, ORIGIN, closeNothing)).rejects.toMatchObject({ kind: 'organization_busy' });
    if (aborted === undefined) throw new Error('it has not been aborted');
    await service.catalog.pauses.end(begun.pause);
    await expect(service.catalog.pauses.begin({ organizationId: id, token: 'other' }, 60_000)).rejects.toMatchObject({
      kind: 'organization_busy',
    });
    await service.catalog.pauses.end(aborted);
    // A pause of somebody else can begin.
    const other = { organizationId: id, token: 'other' };
    await service.catalog.pauses.begin(other, 60_000);
    expect(await mover.catalog.moves.abort(id, begun.pause.token)).toBeUndefined();
    await expect(mover.catalog.moves.switch({ ...begun.pause, token: 'other' }, ORIGIN, closeNothing)).rejects.toMatchObject({
      kind: 'organization_busy',
    });
    await expect(mover.catalog.moves.begin(id, newMoveToken(), begun.to)).rejects.toMatchObject({ kind: 'organization_busy' });
    await service.catalog.moves.forget(aborted);
    await mover.catalog.moves.begin(id, newMoveToken(), begun.to);
  });

  test('that is being undone is undone by another process when that one ends', async () => {
    const begun = await begin();
    const third = await openCatalog(database);
    await third.catalog.moves.abort(begun.organization.id);
    expect(await isFound(begun)).toBe(false);
    expect(await third.catalog.moves.interrupted()).toMatchObject([{ organizationId: begun.organization.id, isOwn: true }]);
    await third.catalog.close();
    // The server may notice later that the process has ended.
    await expect.poll(() => service.catalog.moves.interrupted()).toMatchObject([{ organizationId: begun.organization.id, isOwn: false }]);
  });

  test('that has switched is neither interrupted nor aborted', async () => {
    const third = await openCatalog(database);
    const begun = await begin(third);
    const { organizationId, token } = begun.pause;
    await third.catalog.moves.switch(begun.pause, ORIGIN, closeNothing);
    await third.catalog.close();
    expect(await isFound(begun)).toBe(false);
    expect(await service.catalog.moves.abort(organizationId)).toBeUndefined();
    expect(await service.catalog.moves.abort(organizationId, token, begun.to)).toBeUndefined();
    // Even when the former copy is gone, what the organization has is none.
    await service.catalog.moves.finish(organizationId, ORIGIN);
    expect(await service.catalog.moves.abort(organizationId, token, begun.to)).toBeUndefined();
  });

  test('whose mover goes on after somebody else has undone it leaves what it has made to be removed', async () => {
    const { organization, to, pause } = await begin();
    const aborted = await service.catalog.moves.abort(organization.id);
    if (aborted !== undefined) await service.catalog.moves.forget(aborted);
    expect(await mover.catalog.moves.abort(organization.id, pause.token)).toBeUndefined();
    expect(await mover.catalog.moves.abort(organization.id, pause.token, to)).toMatchObject({ copy: to, kept: organization.placement });
    // Not while there is another move, which may have made it.
    expect(await service.catalog.moves.abort(organization.id, pause.token, to)).toBeUndefined();
  });

  test('of an earlier version is left alone', async () => {
    const begun = await begin();
    await database.query('update postern.moves set mover = null where organization_id = $1', [begun.organization.id]);
    expect(await isFound(begun)).toBe(false);
    expect(await service.catalog.moves.abort(begun.organization.id)).toMatchObject({ copy: begun.to });
  });
});
