import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { eventually } from '../support/eventually.ts';
import { PLACEMENTS, startTestService, type TestOrganization, type TestService } from '../support/service.ts';
import { DOORS } from './doors.ts';

const LIMIT_MS = '5000';

/** Sessions that have told the server to take its time: the gateway goes by its own clock. */
describe.each(PLACEMENTS)('with a %s for each organization', (kind) => {
  let service: TestService;
  let organization: TestOrganization;
  beforeAll(async () => {
    service = await startTestService({
      POSTERN_PLACEMENT: kind,
      POSTERN_STATEMENT_TIMEOUT_MS: LIMIT_MS,
      POSTERN_WIRE_STATEMENT_TIMEOUT_MS: LIMIT_MS,
      POSTERN_IDLE_IN_TRANSACTION_TIMEOUT_MS: LIMIT_MS,
    });
    organization = await service.signUp();
  });
  afterAll(() => service.close());

  it.concurrent.each(Object.entries(DOORS))('a statement over the %s door ends, whatever it has set', async (_name, door) => {
    const patient = "PERFORM set_config('statement_timeout', '0', false), set_config('transaction_timeout', '0', false)";
    const endless = [`DO $$ BEGIN ${patient}; PERFORM pg_sleep(60); END $$`, ['SET statement_timeout = 0', 'SELECT pg_sleep(60)']];
    const ends = await Promise.all(endless.map((statements) => door(service, organization, statements)));
    expect(ends).toMatchObject([{ sqlstate: '57014' }, { sqlstate: '57014' }]);
    expect(await door(service, organization, "SELECT current_setting('statement_timeout')")).toMatchObject({ rows: [['0']] });
  });

  it('a transaction in which nothing happens ends, and lets go of what it holds', async () => {
    await DOORS.http(service, organization, 'CREATE TABLE held (i int)');
    const holder = await service.connect(organization);
    const lastWords = new Promise<Error>((resolve) => holder.on('error', resolve));
    await holder.query('BEGIN; SET idle_in_transaction_session_timeout = 0; LOCK TABLE held');
    expect(await lastWords).toMatchObject({ severity: 'FATAL', code: '25P03' });
    await eventually('the lock is free', async () => (await DOORS.http(service, organization, 'SELECT FROM held')).sqlstate === '00000');
  });
});
