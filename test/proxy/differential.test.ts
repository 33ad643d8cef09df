import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { describeBackend } from '../conversations/backend-message.ts';
import { encodeFrontend } from '../conversations/frontend-message.ts';
import { logIn } from '../conversations/login.ts';
import { nonsense } from '../conversations/nonsense.ts';
import { createPlainTarget, type PlainTarget, type Target } from '../conversations/target.ts';
import { WireClient } from '../conversations/wire-client.ts';
import { makeOwnCluster, type OwnCluster } from '../support/own-cluster.ts';
import { hasPostgres15, startPostgres15 } from '../support/postgres15.ts';
import { SeededRandom } from '../support/random.ts';
import { serverUrl } from '../support/server-url.ts';
import { startTestService, type TestService } from '../support/service.ts';

/**
 * Messages that nobody thought of, in orders that make no sense: whatever Postgres answers to them, Postern does too. What
 * stands between two Syncs goes out in one piece; then the answer is waited for.
 */
let cluster: OwnCluster;
beforeAll(async () => {
  cluster = await makeOwnCluster();
});
afterAll(() => cluster.remove());

describe.each(['database', 'schema'])('in placement %s', (placement) => {
  let service: TestService;
  let both: Both;
  beforeAll(async () => {
    service = await startTestService({
      DATABASE_URL: cluster.url,
      POSTERN_PLACEMENT: placement,
      POSTERN_BACKENDS_PER_TENANT: '3',
      POSTERN_QUEUE_TIMEOUT_MS: '60000',
    });
    const { id, apiKey } = await service.signUp();
    const { body } = await service.call('GET', '/api/auth/me', { key: apiKey });
    const { user, database, port } = body.connection;
    // Neither has anything in it that the other has not.
    const plain = await createPlainTarget(cluster.superuser, `plain_${placement}`);
    const postern: Target = { ...plain, kind: 'postern', host: '127.0.0.1', port, user, database, password: apiKey, backends: 3 };
    both = { plain, postern };
    expect(user).toBe(id);
  });
  afterAll(() => service.close());

  it.each(Array.from({ length: 4 }, (_, group) => group))('conversations of group %i go as with Postgres', async (group) => {
    const seeds = Array.from({ length: 5 }, (_, index) => group * 5 + index + 1);
    const compared = await Promise.all(seeds.map((seed) => compare(both, seed, nonsense(seed))));
    const index = compared.findIndex(({ same }) => !same);
    const [seed, difference] = [seeds[index], compared[index]];
    if (seed === undefined || difference === undefined) return;
    const lines = await shrink(both, seed, nonsense(seed));
    const shortest = await compare(both, seed, lines);
    const { wanted, actual } = shortest.same ? difference : shortest;
    expect(actual, `seed ${seed}:\n${lines.join('\n')}\n`).toEqual(wanted);
  });
});

/** An answer that has not come by then does not come. */
const SHRINKING_MS = 12_000;

interface Both {
  readonly plain: PlainTarget;
  readonly postern: Target;
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
      const message = await this.#client.read();
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

async function compare(
  { plain, postern }: Both,
  seed: number,
  lines: readonly string[],
): Promise<{ wanted: string[]; actual: string[]; same: boolean }> {
  const [wanted, actual] = await Promise.all([replies(plain, seed, lines), replies(postern, seed, lines)]);
  // A server that hangs up with messages unread resets the connection, and its last words may be lost.
  const length = Math.min(...[wanted, actual].map((heard) => heard.indexOf('EOF')));
  const told = length < 0 ? { wanted, actual } : { wanted: wanted.slice(0, length), actual: actual.slice(0, length) };
  return { ...told, same: told.wanted.join('\n') === told.actual.join('\n') };
}

/** Leaves out whatever is not needed to see the difference, as far as the time allows. */
async function shrink(both: Both, seed: number, lines: readonly string[]): Promise<readonly string[]> {
  const until = performance.now() + SHRINKING_MS;
  let needed = lines;
  for (let size = lines.length >> 1; size >= 1; size >>= 1) {
    for (let at = 0; at < needed.length; ) {
      if (performance.now() > until) return needed;
      const fewer = [...needed.slice(0, at), ...needed.slice(at + size)];
      if ((await compare(both, seed, fewer)).same) at += size;
      else needed = fewer;
    }
  }
  return needed;
}

/*
 * Programs: several sessions take turns at a few tables, while one or another changes these. What is prepared where, and what a backend
 * has of whom, is another thing with each seed.
 */

/** What a session sends in one piece. The answer is waited for. */
interface Turn {
  readonly session: number;
  readonly lines: readonly string[];
}

interface Both15 extends Both {
  readonly stop: () => Promise<void>;
}

/**
 * Execute and Query before one Sync lose what they wrote on PostgreSQL 18 itself, so that 15 says what is right. (18 lets no procedure
 * commit there, neither directly nor behind Postern.)
 */
const programmes = [
  { posterns: 18, plain: 18, placement: 'database' },
  { posterns: 18, plain: 18, placement: 'schema' },
  ...(hasPostgres15
    ? [
        { posterns: 18, plain: 15, placement: 'database' },
        { posterns: 15, plain: 15, placement: 'schema' },
      ]
    : []),
];

describe.each(programmes)('programs with Postern on $posterns in placement $placement, as PostgreSQL $plain', (programme) => {
  let both: Both15;
  const joins = programme.plain === 15;
  beforeAll(async () => {
    both = await bothServers(programme);
  });
  afterAll(() => both.stop());

  it.each(Array.from({ length: 10 }, (_, group) => group))('of group %i end as there', async (group) => {
    const seeds = Array.from({ length: PROGRAMS }, (_, index) => group * PROGRAMS + index + 1);
    for (const seed of seeds) {
      const turns = program(seed, joins);
      const difference = await compareProgram(both, seed, turns);
      if (difference === undefined) continue;
      const fewer = await shrinkProgram(both, seed, turns);
      const { wanted, actual } = (await compareProgram(both, seed, fewer)) ?? difference;
      expect(
        actual,
        `seed ${seed}:\n${fewer.map(({ session, lines }) => lines.map((line) => `${session}> ${line}`).join('\n')).join('\n\n')}\n`,
      ).toEqual(wanted);
    }
  });
});

const PROGRAMS = 8;
const TURNS = 40;
const SESSIONS = 4;
const BACKENDS = 3;

async function bothServers({ posterns, plain, placement }: (typeof programmes)[number]): Promise<Both15> {
  const oldest = hasPostgres15 && Math.min(posterns, plain) === 15 ? await startPostgres15() : undefined;
  const service = await startTestService({
    DATABASE_URL: posterns === 15 && oldest !== undefined ? serverUrl(oldest) : cluster.url,
    POSTERN_PLACEMENT: placement,
    POSTERN_BACKENDS_PER_TENANT: String(BACKENDS),
  });
  const { id: user, apiKey: password } = await service.signUp();
  const server = plain === 15 && oldest !== undefined ? oldest : cluster.superuser;
  const target = await createPlainTarget(server, `programs_${posterns}_${plain}_${placement}`);
  const postern: Target = {
    ...target,
    kind: 'postern',
    host: '127.0.0.1',
    port: service.wirePort,
    user,
    database: user,
    password,
    backends: BACKENDS,
  };
  return {
    plain: target,
    postern,
    async stop() {
      await service.close();
      await target.drop();
      await oldest?.stop();
    },
  };
}

/** @param joins a Query may stand behind an Execute without a Sync between them */
function program(seed: number, joins: boolean): Turn[] {
  const random = new SeededRandom(seed);
  const one = (choices: readonly string[]) => choices[random.below(choices.length)] ?? '';
  const maybe = (...lines: string[]) => (random.below(2) === 0 ? lines : []);
  const open = new Set<number>();
  const texts = [one(READS), one(READS), one(READS), ...WRITES];
  /** A statement of a kind that shows what another statement of its session has left. */
  const parse = (name: string) => `Parse ${name} ${one(texts)}`;
  const run = (statement: string, portal = '""') => [
    `Bind ${portal} ${statement} []`,
    ...maybe(`Describe P ${portal}`),
    `Execute ${portal} ${random.below(4) === 0 ? 1 : 0}`,
  ];
  const first = () =>
    [[], [], [`Close S ${one(['nope', '""', 's1'])}`], ['Close P ""'], ['Flush'], ['Parse s9 SELECT 9', 'Close S s9']][random.below(6)] ??
    [];
  const unnamedKinds: (() => string[])[] = [
    () => [...first(), parse('""'), ...run('""', one(['""', '""', 'p'])), 'Sync'],
    () => [...first(), parse('""'), ...run('""'), 'Sync'],
    () => [...first(), 'Parse "" SELECT * FROM missing#', 'Sync'],
    () => [parse('""'), 'Describe S ""', 'Sync'],
    () => [...first(), ...run('""'), 'Sync'],
    () => [...run('""'), 'Sync'],
    () => ['Describe S ""', 'Sync'],
    () => [...first(), parse('""'), ...maybe('Bind "" "" []'), ...maybe('Flush'), `Query ${one(QUERIES)}`, 'Sync'],
    () => ['Close S s1', parse('s1'), ...run('s1'), 'Sync'],
    () => [...first(), ...run('s1'), 'Sync'],
    () => [...first(), ...maybe('Describe S s1'), ...run('s1'), 'Sync'],
    () => ['Query EXECUTE s1'],
    () => [`Query ${one(QUERIES)}`],
    () => [`Query ${one(SETTINGS)}`],
    ...(joins ? [() => [parse('""'), ...run('""'), `Query ${one(JOINED)}`, 'Sync']] : []),
  ];
  /** Often enough for Postern to prepare it by itself; then it fails once more where something else is prepared. */
  const fails = (session: number) => [
    ...Array.from({ length: 3 + random.below(3) }, () => ({ session: free(session), lines: MISSING })),
    { session, lines: [parse('""'), 'Describe S ""', 'Sync'] },
    ...(random.below(2) === 0 ? [{ session: free(session), lines: MISSING }] : []),
    { session, lines: MISSING },
    { session, lines: [...first(), ...run('""'), 'Sync'] },
  ];
  const free = (otherwise: number) => {
    const session = random.below(SESSIONS);
    return open.has(session) ? otherwise : session;
  };
  return Array.from({ length: TURNS }, (): Turn | Turn[] => {
    const session = random.below(SESSIONS);
    const kind = random.below(10);
    if (open.has(session)) {
      open.delete(session);
      return { session, lines: ['Query COMMIT'] };
    }
    if (kind < 2 && open.size < BACKENDS - 1) {
      open.add(session);
      return { session, lines: ['Query BEGIN'] };
    }
    if (kind < 4) return { session, lines: [`Query ${one(CHANGES)}`] };
    if (kind === 4 && random.below(3) === 0) return fails(session);
    return { session, lines: unnamedKinds[random.below(unnamedKinds.length)]?.() ?? [] };
  })
    .flat()
    .map(({ session, lines }) => ({ session, lines: lines.map((line) => line.replaceAll('#', String(seed))) }));
}

const MISSING = ['Parse "" SELECT * FROM missing#', 'Sync'];
const READS = [
  'SELECT * FROM rows#',
  'SELECT v FROM rows#',
  'SELECT * FROM view#',
  'SELECT * FROM made#()',
  'SELECT * FROM other#',
  "SELECT '2025-02-01'::date AS day",
  "SELECT nextval('rows#_id_seq')",
];
const WRITES = [
  'INSERT INTO rows# (v) VALUES (1)',
  'INSERT INTO rows# (v) VALUES (2) RETURNING *',
  'CALL put#()',
  'DO $$ BEGIN INSERT INTO rows# (v) VALUES (3); COMMIT; END $$',
];
const QUERIES = [
  'INSERT INTO rows# (v) VALUES (4)',
  'CALL put#()',
  'SELECT 5',
  'SELECT 1 / 0',
  'INSERT INTO rows# (v) VALUES (6); SELECT 6',
];
const JOINED = QUERIES.filter((query) => !query.startsWith('CALL'));
const SETTINGS = ["SET DateStyle = 'German'", 'RESET DateStyle', "SET DateStyle = 'SQL, DMY'", "SET my.own = 'x'"];
const CHANGES = [
  'ALTER TABLE rows# ADD c int',
  'ALTER TABLE rows# DROP c',
  'ALTER TABLE rows# RENAME v TO w',
  'ALTER TABLE rows# RENAME w TO v',
  'DROP TABLE other#; CREATE TABLE other# AS SELECT 1 AS a',
  "DROP TABLE other#; CREATE TABLE other# AS SELECT 'x' AS a, 2 AS b",
  'ALTER TABLE other# ALTER a TYPE text',
  'DROP VIEW view#; CREATE VIEW view# AS SELECT 1 AS one',
  "DROP VIEW view#; CREATE VIEW view# AS SELECT 'x' AS one, 2 AS two",
  'DROP FUNCTION made#; CREATE FUNCTION made#() RETURNS TABLE (m int) LANGUAGE sql AS $$ SELECT 1 $$',
  'DROP FUNCTION made#; CREATE FUNCTION made#() RETURNS TABLE (m int, n text) LANGUAGE sql AS $$ SELECT 1, $t$x$t$ $$',
];
const BEGINNING = `Query
DROP TABLE IF EXISTS rows#, other# CASCADE; DROP FUNCTION IF EXISTS made#; DROP VIEW IF EXISTS view#; DROP PROCEDURE IF EXISTS put#;
CREATE TABLE rows# (id serial, v int);
CREATE TABLE other# AS SELECT 1 AS a;
CREATE VIEW view# AS SELECT 1 AS one;
CREATE FUNCTION made#() RETURNS TABLE (m int) LANGUAGE sql AS $$ SELECT 1 $$;
CREATE PROCEDURE put#() LANGUAGE plpgsql AS $$ BEGIN INSERT INTO rows# VALUES (DEFAULT, 7); COMMIT; INSERT INTO rows# VALUES (DEFAULT, 8); END $$
`.replaceAll('\n', ' ');
const ENDING = 'Query SELECT rows#::text FROM rows# ORDER BY id';

async function compareProgram(
  both: Both,
  seed: number,
  turns: readonly Turn[],
): Promise<{ wanted: string[]; actual: string[] } | undefined> {
  const [wanted, actual] = await Promise.all([outcome(both.plain, seed, turns), outcome(both.postern, seed, turns)]);
  return wanted.join('\n') === actual.join('\n') ? undefined : { wanted, actual };
}

/** All that the sessions are told, turn by turn, and the rows that are there in the end. */
async function outcome(target: Target, seed: number, turns: readonly Turn[]): Promise<string[]> {
  const clients = await Promise.all(
    Array.from({ length: SESSIONS }, async () => {
      const client = await WireClient.open(target.host, target.port);
      await logIn(client, target, '3.0', new Map());
      return client;
    }),
  );
  const [owner] = clients;
  if (owner === undefined) throw new Error('no session');
  const heard: string[] = [];
  await say(owner, [BEGINNING.replaceAll('#', String(seed))]);
  for (const { session, lines } of turns) {
    const client = clients[session];
    if (client === undefined || lines.length === 0) continue;
    heard.push(`-- ${session}> ${lines.join(' · ')}`, ...(await say(client, lines)));
  }
  heard.push(...(await say(owner, [ENDING.replaceAll('#', String(seed))])));
  for (const client of clients) client.disconnect();
  return heard.map((line) => line.replaceAll(target.user, 'USER'));
}

/** @param lines extended messages, at most one Query behind these, and a Sync unless the Query is all */
async function say(client: WireClient, lines: readonly string[]): Promise<string[]> {
  await client.write(Buffer.concat(lines.map(encodeFrontend)));
  const extended = lines.filter((line) => /^(?:Parse|Bind|Describe|Execute|Close)/.test(line)).length;
  const ends = lines.filter((line) => /^(?:Query|Sync)/.test(line)).length;
  const heard: string[] = [];
  let [answered, owed] = [0, ends];
  while (owed > 0) {
    const message = await client.read(SILENCE_MS);
    if (typeof message !== 'object') return [...heard, message ?? 'silence'];
    if (message.type === 'S') continue;
    heard.push(describeBackend(message));
    if (message.type === 'Z') owed -= 1;
    // The server ignores what is behind a failed message up to the Sync.
    else if (message.type === 'E' && answered < extended) owed = 1;
    else if ('123nTCIs'.includes(message.type)) answered += 1;
  }
  return heard;
}

const SILENCE_MS = 60_000;

async function shrinkProgram(both: Both, seed: number, turns: readonly Turn[]): Promise<readonly Turn[]> {
  const until = performance.now() + SHRINKING_MS;
  let needed = turns;
  for (let size = turns.length >> 1; size >= 1; size >>= 1) {
    for (let at = 0; at < needed.length; ) {
      if (performance.now() > until) return needed;
      const fewer = [...needed.slice(0, at), ...needed.slice(at + size)];
      if ((await compareProgram(both, seed, fewer)) === undefined) at += size;
      else needed = fewer;
    }
  }
  return needed;
}
