import { afterAll, beforeAll, expect, it } from 'vitest';
import { describeBackend } from '../conversations/backend-message.ts';
import { encodeFrontend } from '../conversations/frontend-message.ts';
import { logIn } from '../conversations/login.ts';
import { createPlainTarget, type PlainTarget, type Target } from '../conversations/target.ts';
import { WireClient } from '../conversations/wire-client.ts';
import { makeOwnCluster, type OwnCluster } from '../support/own-cluster.ts';
import { SeededRandom } from '../support/random.ts';
import { startTestService, type TestService } from '../support/service.ts';

/**
 * Messages that nobody thought of, in orders that make no sense: whatever Postgres answers to them, Postern does too. What
 * stands between two Syncs goes out in one piece; then the answer is waited for.
 */
let cluster: OwnCluster;
let service: TestService;
let postern: Target;
let plain: PlainTarget;
beforeAll(async () => {
  cluster = await makeOwnCluster();
  plain = await createPlainTarget(cluster.superuser, 'plain');
  service = await startTestService({ DATABASE_URL: cluster.url, POSTERN_BACKENDS_PER_TENANT: '3', POSTERN_QUEUE_TIMEOUT_MS: '60000' });
  const { id, apiKey } = await service.signUp();
  const address = { host: '127.0.0.1', port: service.wirePort };
  postern = { ...plain, ...address, kind: 'postern', user: id, database: id, password: apiKey, backends: 3 };
});
afterAll(async () => {
  await service.close();
  await cluster.remove();
});

const MESSAGES = 60;

type Weighted<T> = readonly (readonly [weight: number, choice: T])[];

/** Statements that change what a session holds, and statements that show it; `#` is the conversation's own number. */
const STATEMENTS: Weighted<string> = [
  [6, 'SELECT 1'],
  [3, 'SELECT generate_series(1, 5) AS n'],
  [2, "SELECT 'a' AS a; SELECT 'b' AS b"],
  [1, ''],
  [1, '-- nothing'],
  [2, 'SELECT 1 / 0'],
  [1, 'SELEC'],
  [6, 'BEGIN'],
  [5, 'COMMIT'],
  [4, 'ROLLBACK'],
  [1, 'BEGIN; SELECT 1'],
  [1, 'COMMIT AND CHAIN'],
  [2, 'SAVEPOINT s'],
  [2, 'ROLLBACK TO s'],
  [1, 'RELEASE s'],
  [3, 'INSERT INTO t# VALUES (1)'],
  [3, 'SELECT count(*) FROM t#'],
  [1, "INSERT INTO t# VALUES (1) RETURNING n, 'x' AS x"],
  [1, 'DELETE FROM t#'],
  [3, "SET application_name = 'a#'"],
  [2, "SET LOCAL application_name = 'local#'"],
  [3, 'SHOW application_name'],
  [2, "SET DateStyle = 'SQL, DMY'"],
  [2, "SELECT date '2025-01-31' AS day"],
  [2, "SET work_mem = '#MB'"],
  [2, 'SHOW work_mem'],
  [1, 'RESET ALL'],
  [1, 'RESET DateStyle'],
  [1, 'SET client_encoding = latin1'],
  [1, 'SET client_encoding = utf8'],
  [1, 'DISCARD ALL'],
  [1, 'DEALLOCATE ALL'],
  [1, 'PREPARE q (int) AS SELECT $1 + # AS n'],
  [2, 'EXECUTE q (1)'],
  [1, 'EXECUTE s1'],
  [1, 'DEALLOCATE s1'],
  [1, 'DECLARE c CURSOR FOR SELECT generate_series(1, 3) AS n'],
  [1, 'DECLARE c CURSOR WITH HOLD FOR SELECT generate_series(1, 3) AS n'],
  [2, 'FETCH 2 FROM c'],
  [1, 'CLOSE c'],
  [1, 'CREATE TEMPORARY TABLE own# (n int)'],
  [1, 'INSERT INTO own# VALUES (#)'],
  [1, 'SELECT n FROM own#'],
  [1, 'DROP TABLE own#'],
  [1, 'LISTEN c#'],
  [2, "NOTIFY c#, 'news'"],
  [1, 'UNLISTEN *'],
  [1, 'SELECT pg_advisory_lock(#)'],
  [1, 'SELECT pg_advisory_unlock(#)'],
  [1, "DO $$ BEGIN RAISE NOTICE 'number #'; END $$"],
  [1, 'COPY t# TO STDOUT'],
  [1, 'COPY t# FROM STDIN'],
  [1, 'VACUUM t#'],
];

const PARAMETRIZED: Weighted<string> = [
  [3, 'SELECT $1::int + 1 AS n'],
  [1, 'SELECT $1::text AS a, $1::text AS b'],
  [1, 'INSERT INTO t# VALUES ($1)'],
  [1, 'SELECT generate_series(1, $1::int) AS n'],
];

const STATEMENT_NAMES: Weighted<string> = [
  [4, '""'],
  [2, 's1'],
  [2, 's2'],
];
const PORTAL_NAMES: Weighted<string> = [
  [5, '""'],
  [1, 'p1'],
];
const VALUES: Weighted<string> = [
  [4, '[]'],
  [3, '[3]'],
  [1, '[x]'],
  [1, '[1 2]'],
];

/**
 * One message as conversations write it, or a few that belong together. The unnamed portal is executed only behind its Bind:
 * Postgres can be crashed by Execute otherwise (see stray-portal.test.ts).
 */
const KINDS: Weighted<(random: SeededRandom) => string> = [
  [8, (random) => `Query ${pick(random, STATEMENTS)}`],
  [5, parse],
  [2, (random) => `Bind ${pick(random, PORTAL_NAMES)} ${pick(random, STATEMENT_NAMES)} ${pick(random, VALUES)}`],
  [6, (random) => `Bind "" ${pick(random, STATEMENT_NAMES)} ${pick(random, VALUES)}\nExecute "" ${random.below(3)}`],
  [1, (random) => `Bind "" ${pick(random, STATEMENT_NAMES)} []\nDescribe P ""\nExecute "" 1\nExecute "" 0`],
  [2, (random) => `Describe S ${pick(random, STATEMENT_NAMES)}`],
  [2, (random) => `Describe P ${pick(random, PORTAL_NAMES)}`],
  [2, (random) => `Execute p1 ${random.below(3)}`],
  [1, (random) => `Close S ${pick(random, STATEMENT_NAMES)}`],
  [1, (random) => `Close P ${pick(random, PORTAL_NAMES)}`],
  [6, () => 'Sync'],
  [1, () => 'Flush'],
  [1, () => 'CopyData "7\\n"'],
  [1, () => 'CopyDone'],
  [1, () => 'CopyFail enough'],
];

/** The text tells the name: of two names for one text, errors would say the other. */
function parse(random: SeededRandom): string {
  const name = pick(random, STATEMENT_NAMES);
  return `Parse ${name} ${pick(random, random.below(2) === 0 ? PARAMETRIZED : STATEMENTS)} /* ${name} */`;
}

function pick<T>(random: SeededRandom, from: Weighted<T>): T {
  let place = random.below(from.reduce((sum, [weight]) => sum + weight, 0));
  for (const [weight, choice] of from) {
    place -= weight;
    if (place < 0) return choice;
  }
  throw new Error('nothing to pick from');
}

/** A simple query is no part of an extended one, and at the end nothing is left open. */
function conversation(seed: number): string[] {
  const random = new SeededRandom(seed);
  const lines = Array.from({ length: MESSAGES }, () => pick(random, KINDS)(random).replaceAll('#', String(seed)));
  return [
    ...lines.flatMap((line) => (line.startsWith('Query') ? ['Sync', line] : [line])),
    'CopyDone',
    'Sync',
    'Query ROLLBACK',
    'Query SELECT 1',
  ];
}

/** The same session in each place, from its first message to the last answer. */
async function replies(target: Target, seed: number, lines: readonly string[]): Promise<string[]> {
  const client = await WireClient.open(target.host, target.port);
  await logIn(client, target, '3.0', new Map([['application_name', 'differential']]));
  const talk = new Talk(client, target.user);
  await talk.say(`Query DROP TABLE IF EXISTS t${seed}; CREATE TABLE t${seed} (n int)`);
  for (const line of lines.flatMap((some) => some.split('\n'))) await talk.say(line);
  client.disconnect();
  return [
    ...talk.heard,
    ...[...client.parameters]
      .filter(([name]) => name !== 'session_authorization')
      .map(String)
      .sort(),
  ];
}

/**
 * Speaks as drivers do: waits where an answer must come, sends COPY data, and only that, when it is asked for, and nothing
 * but simple queries to a transaction that has failed.
 */
class Talk {
  readonly heard: string[] = [];
  readonly #client: WireClient;
  readonly #user: string;
  #copying: 'by Query' | 'by Execute' | undefined;
  #failed = false;
  #over = false;

  constructor(client: WireClient, user: string) {
    this.#client = client;
    this.#user = user;
  }

  async say(line: string): Promise<void> {
    const [kind = ''] = line.split(' ', 1);
    const isCopy = kind.startsWith('Copy');
    if (this.#over || (this.#copying !== undefined) !== isCopy || (this.#failed && kind !== 'Query')) return;
    await this.#client.write(encodeFrontend(line));
    if (kind === 'CopyDone' || kind === 'CopyFail') await this.#endCopy();
    else if (kind === 'Query' || kind === 'Sync') await this.#listen(kind === 'Query' ? 'by Query' : 'by Execute');
  }

  async #endCopy(): Promise<void> {
    const how = this.#copying;
    this.#copying = undefined;
    // The Sync that was sent behind the Execute has been ignored: the data was still to come.
    if (how === 'by Execute') await this.#client.write(encodeFrontend('Sync'));
    await this.#listen('by Query');
  }

  /** @param copying how a COPY has come about that begins now */
  async #listen(copying: 'by Query' | 'by Execute'): Promise<void> {
    for (;;) {
      const message = await this.#client.read(10_000);
      if (typeof message !== 'object') {
        this.heard.push(message ?? 'silence');
        this.#over = true;
        return;
      }
      if (message.type === 'S') continue;
      const said = describeBackend(message).replace(new RegExp(`\\b${this.#client.processId}\\b`), 'PID');
      this.heard.push(said.replaceAll(this.#user, 'USER'));
      if (message.type === 'G') this.#copying = copying;
      if (message.type === 'Z') this.#failed = said.endsWith(' E');
      if (message.type === 'G' || message.type === 'Z') return;
    }
  }
}

async function compare(seed: number, lines: readonly string[]): Promise<{ wanted: string[]; actual: string[]; same: boolean }> {
  const [wanted, actual] = await Promise.all([replies(plain, seed, lines), replies(postern, seed, lines)]);
  return { wanted, actual, same: wanted.join('\n') === actual.join('\n') };
}

/** Leaves out whatever is not needed to see the difference. */
async function shrink(seed: number, lines: readonly string[]): Promise<readonly string[]> {
  let needed = lines;
  for (let size = lines.length >> 1; size >= 1; size >>= 1) {
    for (let at = 0; at < needed.length; ) {
      const fewer = [...needed.slice(0, at), ...needed.slice(at + size)];
      if ((await compare(seed, fewer)).same) at += size;
      else needed = fewer;
    }
  }
  return needed;
}

it.each(Array.from({ length: 12 }, (_, group) => group))(
  'conversations of group %i go as with Postgres',
  { timeout: 120_000 },
  async (group) => {
    const seeds = Array.from({ length: 5 }, (_, index) => group * 5 + index + 1);
    const compared = await Promise.all(seeds.map((seed) => compare(seed, conversation(seed))));
    const index = compared.findIndex(({ same }) => !same);
    const [seed, difference] = [seeds[index], compared[index]];
    if (seed === undefined || difference === undefined) return;
    const lines = await shrink(seed, conversation(seed));
    const shortest = await compare(seed, lines);
    const { wanted, actual } = shortest.same ? difference : shortest;
    expect(actual, `seed ${seed}:\n${lines.join('\n')}\n`).toEqual(wanted);
  },
);
