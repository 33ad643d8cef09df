import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { PLACEMENTS, startTestService, type TestOrganization, type TestService } from '../support/service.ts';
import { closeAfterClients } from './address.ts';
import { libpqEnvironment, needDebian, runClient } from './debian.ts';

const PGBENCH = '/usr/lib/postgresql/15/bin/pgbench';
const FOLDER = fileURLToPath(new URL('pgbench', import.meta.url));
const CLIENTS = 64;
const TURNS = 50;
/** Rows of `pgbench_branches`, for which the transactions compete. */
const SCALE = 8;

describe.each(PLACEMENTS)('pgbench with 64 clients on 8 backends, placement %s', (placement) => {
  let service: TestService;
  let organization: TestOrganization;
  beforeAll(async () => {
    needDebian('postgresql-15');
    service = await startTestService({ POSTERN_BACKENDS_PER_TENANT: '8', POSTERN_PLACEMENT: placement });
    organization = await service.signUp();
    await initialize();
  });
  afterAll(() => closeAfterClients(service));

  function pgbench(...words: readonly string[]): Promise<string> {
    return runClient(PGBENCH, words, { env: libpqEnvironment(service, organization) });
  }

  const initialize = () => pgbench('--initialize', '--foreign-keys', '--quiet', `--scale=${SCALE}`);

  async function bench(...words: readonly string[]): Promise<void> {
    const said = await pgbench(`--client=${CLIENTS}`, `--transactions=${TURNS}`, '--jobs=2', '--no-vacuum', ...words);
    expect(said).toContain(`number of transactions actually processed: ${CLIENTS * TURNS}/${CLIENTS * TURNS}\n`);
    expect(said).toContain('number of failed transactions: 0 (0.000%)\n');
  }

  async function sums(): Promise<Record<string, number>> {
    const { body } = await service.query(
      organization,
      `SELECT (SELECT sum(abalance) FROM pgbench_accounts)::int AS accounts, (SELECT sum(tbalance) FROM pgbench_tellers)::int AS tellers,
              (SELECT sum(bbalance) FROM pgbench_branches)::int AS branches, sum(delta)::int AS history, count(*)::int AS transactions
       FROM pgbench_history`,
    );
    return body.rows[0];
  }

  describe.each(['simple', 'extended', 'prepared'])('protocol %s', (protocol) => {
    it('reads', async () => {
      await bench(`--protocol=${protocol}`, '--select-only');
    });

    it('keeps the books', async () => {
      await initialize();
      await bench(`--protocol=${protocol}`);
      const { transactions, history, ...others } = await sums();
      expect(transactions).toBe(CLIENTS * TURNS);
      expect(others).toEqual({ accounts: history, tellers: history, branches: history });
    });
  });

  it.each(['extended', 'prepared'])('keeps the books in pipelines, protocol %s', async (protocol) => {
    const { accounts } = await sums();
    await bench(`--protocol=${protocol}`, `--file=${join(FOLDER, 'pipeline.sql')}`, `--scale=${SCALE}`);
    expect((await sums()).accounts).toBe(accounts);
  });

  it('logs in for each transaction', async () => {
    await pgbench('--client=16', '--transactions=5', '--connect', '--select-only', '--no-vacuum');
  });
});
