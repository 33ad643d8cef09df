import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { TestOrganization } from '../support/doors.ts';
import { eventually } from '../support/eventually.ts';
import { inThisPart } from '../support/parts.ts';
import { PLACEMENTS, startTestService, type TestService } from '../support/service.ts';

const MEBIBYTE = 1_024 ** 2;
/** An empty database has 8 MB of its own. */
const LIMIT = 16 * MEBIBYTE;

/** Makes the data larger than the limit. */
const FILL = `INSERT INTO filling SELECT repeat('x', 1000) FROM generate_series(1, 20000)`;

describe.each(inThisPart(PLACEMENTS, (placement) => placement === 'database'))('in the %s placement', (placement) => {
  let service: TestService;
  beforeAll(async () => {
    service = await startTestService({ POSTERN_PLACEMENT: placement, POSTERN_DISK_PER_TENANT_BYTES: String(LIMIT) });
  });
  afterAll(() => service.close());

  async function actions({ apiKey: key }: TestOrganization): Promise<string[]> {
    const { body } = await service.call('GET', '/api/audit', { key });
    const all: string[] = body.data.map(({ action }: { action: string }) => action);
    return all.filter((action) => action.endsWith('_quota'));
  }

  const metrics = async () => (await fetch(`${service.opsUrl}/metrics`)).text();
  const isRefused = async (organization: TestOrganization) =>
    (await service.query(organization, 'INSERT INTO other VALUES (1)')).body.code === 'disk_quota_exceeded';

  test('an organization that is over its quota reads and deletes at both doors, until there is room', async () => {
    const [organization, neighbour] = [await service.signUp(), await service.signUp()];
    const client = await service.connect(organization);
    await client.query('CREATE TABLE filling (body text); CREATE TABLE other (id int)');
    await client.query('CREATE TEMPORARY TABLE mine (id int)');
    await client.query(FILL);
    await eventually('writing is refused', () => isRefused(organization));
    await client.end();

    const { status, headers, body } = await service.query(organization, 'CREATE TABLE another (id int)');
    expect(status).toBe(507);
    expect(headers.get('retry-after')).toBeNull();
    expect(body).toMatchObject({
      code: 'disk_quota_exceeded',
      title: 'Disk quota exceeded',
      detail: 'the organization is over its disk quota',
      retryable: false,
      sqlstate: '53100',
      hint: expect.stringMatching(/^DROP and TRUNCATE make room/),
    });
    const again = await service.connect(organization);
    await expect(again.query('INSERT INTO other VALUES (1)')).rejects.toMatchObject({
      code: '53100',
      message: 'the organization is over its disk quota',
    });
    expect((await again.query('SELECT count(*)::int FROM filling')).rows).toEqual([{ count: 20_000 }]);
    expect((await actions(organization))[0]).toBe('organization.over_quota');
    expect(await metrics()).toContain('postern_organizations_over_quota{percent="100"} 1\n');
    const me = await service.call('GET', '/api/auth/me', { key: organization.apiKey });
    expect(me.body.disk).toEqual({ usedBytes: expect.any(Number), isOverQuota: true });
    expect(me.body.disk.usedBytes).toBeGreaterThan(LIMIT);
    const cloned = await service.call('POST', '/api/clones', { key: organization.apiKey, body: {} });
    expect([cloned.status, cloned.body.code]).toEqual([507, 'disk_quota_exceeded']);
    expect((await service.query(neighbour, 'CREATE TABLE other AS SELECT 1')).status).toBe(200);

    await again.query('TRUNCATE filling');
    await eventually('writing is possible', async () => (await actions(organization))[0] === 'organization.within_quota');
    // The session has gone on.
    await again.query('INSERT INTO other VALUES (1); CREATE TABLE another AS SELECT 1; CREATE TEMPORARY TABLE mine AS SELECT 1');
    await again.end();
    expect(await metrics()).toContain('postern_organizations_over_quota{percent="100"} 0\n');
    const told = service.observations.filter(
      // It may have been measured on the way.
      (observation) => observation.name === 'organization.disk' && observation.state !== 'near',
    );
    expect(told).toMatchObject([
      { state: 'over', limit: LIMIT, message: expect.stringMatching(/has \d+ of 16777216 bytes of data, and may only read and delete$/) },
      { state: 'within', limit: LIMIT },
    ]);
  });
});
