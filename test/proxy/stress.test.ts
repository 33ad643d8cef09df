import { afterAll, beforeAll, expect, it } from 'vitest';
import { describeBackend } from '../conversations/backend-message.ts';
import { encodeFrontend } from '../conversations/frontend-message.ts';
import type { WireClient } from '../conversations/wire-client.ts';
import { SeededRandom } from '../support/random.ts';
import { openSession } from '../support/raw-session.ts';
import { startTestService, type TestOrganization, type TestService } from '../support/service.ts';

/**
 * A crowd on a few backends, each client with many requests on their way at once, and no value twice: every answer has to be
 * the answer to its own request.
 */
const CLIENTS = 200;
const BACKENDS = 5;
const DURATION_MS = 30_000;
const MAX_EXCHANGES = 12;
const SEED = 4_711;

let service: TestService;
let organization: TestOrganization;
beforeAll(async () => {
  service = await startTestService({
    POSTERN_BACKENDS_PER_TENANT: String(BACKENDS),
    POSTERN_CLIENTS_PER_TENANT: String(CLIENTS + 10),
    POSTERN_QUEUE_TIMEOUT_MS: '60000',
  });
  organization = await service.signUp();
  await service.query(organization, 'CREATE TABLE ledger (client int, value text)');
});
afterAll(() => service.close());

/** What is said in one go, and what must be answered. */
interface Exchange {
  readonly says: readonly string[];
  readonly hears: readonly string[];
}

class Member {
  readonly client: WireClient;
  readonly id: number;
  readonly random: SeededRandom;
  pipelines = 0;
  committed = 0;
  /** Its prepared statements: every client gives the same names to other statements. */
  readonly statements = new Set<string>();
  #values = 0;

  constructor(client: WireClient, id: number) {
    this.client = client;
    this.id = id;
    this.random = new SeededRandom(SEED * 1_000 + id);
  }

  /** A value that nobody else has, and this client never again. */
  value(): string {
    this.#values += 1;
    return `v${this.id}.${this.#values}`;
  }
}

const IDLE = 'ReadyForQuery I';
const row = (value: string) => ['RowDescription', `DataRow ${value}`, 'CommandComplete SELECT 1'];
const invalid = (value: string) => `ErrorResponse ERROR 22P02 "invalid input syntax for type integer: \\"${value}\\""`;
const bound = (value: string) => ['BindComplete', `DataRow ${value}`, 'CommandComplete SELECT 1'];

const EXCHANGES: readonly ((member: Member) => Exchange)[] = [
  (member) => {
    const value = member.value();
    return { says: [`Query SELECT '${value}'`], hears: [...row(value), IDLE] };
  },
  (member) => {
    const [one, two] = [member.value(), member.value()];
    return { says: [`Query SELECT '${one}'; SELECT '${two}'`], hears: [...row(one), ...row(two), IDLE] };
  },
  (member) => {
    const [one, two] = [member.value(), member.value()];
    return { says: [`Query SELECT '${one}'; SELECT '${two}'::int; SELECT 3`], hears: [...row(one), invalid(two), IDLE] };
  },
  (member) => {
    const value = member.value();
    return {
      says: ['Parse "" SELECT $1::text', `Bind "" "" [${value}]`, 'Describe P ""', 'Execute', 'Sync'],
      hears: ['ParseComplete', 'BindComplete', ...row(value), IDLE],
    };
  },
  named,
  named,
  named,
  (member) => {
    const [one, two, three] = [member.value(), member.value(), member.value()];
    return {
      says: ['Parse "" SELECT $1::text', ...[one, two, three].flatMap((value) => [`Bind "" "" [${value}]`, 'Execute']), 'Sync'],
      hears: ['ParseComplete', ...[one, two, three].flatMap(bound), IDLE],
    };
  },
  // What comes behind an error is thrown away.
  (member) => {
    const [good, bad] = [member.value(), member.value()];
    return {
      says: [
        `Parse "" SELECT '${good}'`,
        'Bind "" "" []',
        'Execute',
        `Parse "" SELECT '${bad}'::int`,
        `Parse "" SELECT '${member.value()}'`,
        'Bind "" "" []',
        'Execute',
        'Sync',
      ],
      hears: ['ParseComplete', ...bound(good), invalid(bad), IDLE],
    };
  },
  (member) => transaction(member, 'COMMIT'),
  (member) => transaction(member, 'ROLLBACK'),
  (member) => {
    const [bad, ignored] = [member.value(), member.value()];
    return {
      says: ['Query BEGIN', `Query SELECT '${bad}'::int`, `Query SELECT '${ignored}'`, 'Query COMMIT'],
      hears: [
        'CommandComplete BEGIN',
        'ReadyForQuery T',
        invalid(bad),
        'ReadyForQuery E',
        'ErrorResponse ERROR 25P02 "current transaction is aborted, commands ignored until end of transaction block"',
        'ReadyForQuery E',
        'CommandComplete ROLLBACK',
        IDLE,
      ],
    };
  },
  // A setting follows its client from backend to backend.
  (member) => {
    const value = member.value();
    return {
      says: [`Query SET application_name = '${value}'`, 'Query SHOW application_name'],
      hears: ['CommandComplete SET', IDLE, 'RowDescription', `DataRow ${value}`, 'CommandComplete SHOW', IDLE],
    };
  },
  (member) => {
    const [value, count] = [member.value(), 1 + member.random.below(50)];
    return {
      says: ['Parse "" SELECT $1::text FROM generate_series(1, $2::int)', `Bind "" "" [${value} ${count}]`, 'Execute', 'Sync'],
      hears: ['ParseComplete', 'BindComplete', ...Array<string>(count).fill(`DataRow ${value}`), `CommandComplete SELECT ${count}`, IDLE],
    };
  },
];

/** Prepared at its first use, and from time to time taken away again. */
function named(member: Member): Exchange {
  const { id, random, statements } = member;
  const [name, value] = [`s${random.below(6)}`, member.value()];
  const parses = statements.has(name) ? [] : [`Parse ${name} SELECT $1::text || ' to ${name} of ${id}'`];
  const closes = random.below(4) === 0 ? [`Close S ${name}`] : [];
  if (closes.length > 0) statements.delete(name);
  else statements.add(name);
  return {
    says: [...parses, `Bind "" ${name} [${value}]`, 'Execute', ...closes, 'Sync'],
    hears: [
      ...parses.map(() => 'ParseComplete'),
      'BindComplete',
      `DataRow "${value} to ${name} of ${id}"`,
      'CommandComplete SELECT 1',
      ...closes.map(() => 'CloseComplete'),
      IDLE,
    ],
  };
}

function transaction(member: Member, end: 'COMMIT' | 'ROLLBACK'): Exchange {
  const [one, two] = [member.value(), member.value()];
  if (end === 'COMMIT') member.committed += 1;
  return {
    says: [
      'Query BEGIN',
      `Query INSERT INTO ledger VALUES (${member.id}, '${one}')`,
      `Parse "" SELECT value || $1 FROM ledger WHERE client = ${member.id} AND value = '${one}'`,
      `Bind "" "" [${two}]`,
      'Execute',
      'Sync',
      `Query ${end}`,
    ],
    hears: [
      'CommandComplete BEGIN',
      'ReadyForQuery T',
      'CommandComplete INSERT 0 1',
      'ReadyForQuery T',
      'ParseComplete',
      ...bound(`${one}${two}`),
      'ReadyForQuery T',
      `CommandComplete ${end}`,
      IDLE,
    ],
  };
}

/** Sends a few exchanges without waiting, in pieces, and compares what comes. */
async function pipeline(member: Member): Promise<void> {
  const { client, random } = member;
  const exchanges = Array.from({ length: 1 + random.below(MAX_EXCHANGES) }, () => EXCHANGES[random.below(EXCHANGES.length)]?.(member));
  const says = exchanges.flatMap((exchange) => exchange?.says ?? []);
  const hears = exchanges.flatMap((exchange) => exchange?.hears ?? []);
  const bytes = Buffer.concat(says.map(encodeFrontend));
  for (const chunk of random.below(3) === 0 ? random.cut(bytes, 400) : [bytes]) void client.write(chunk);
  const heard: string[] = [];
  for (let left = hears.filter((reply) => reply.startsWith('ReadyForQuery')).length; left > 0; ) {
    const reply = await hear(client);
    if (reply !== undefined) heard.push(reply);
    if (reply?.startsWith('ReadyForQuery')) left -= 1;
  }
  expect(heard, `client ${member.id}, pipeline ${member.pipelines}, seed ${SEED}:\n${says.join('\n')}\n`).toEqual(hears);
  member.pipelines += 1;
}

/** @returns undefined for a change of parameters, which may come at any time */
async function hear(client: WireClient): Promise<string | undefined> {
  const message = await client.read();
  if (typeof message !== 'object') throw new Error(`instead of an answer there was ${message ?? 'silence'}`);
  if (message.type === 'S') return undefined;
  return message.type === 'T' ? 'RowDescription' : describeBackend(message).replace(/ position=\d+$/, '');
}

it(`${CLIENTS} clients on ${BACKENDS} backends each get their own answers`, { timeout: DURATION_MS + 600_000 }, async () => {
  const members: Member[] = [];
  // One after another: a client takes its time to prove that it knows the key.
  for (let id = 0; id < CLIENTS; id += 1) members.push(new Member(await openSession(service, organization), id));
  const until = performance.now() + DURATION_MS;
  await Promise.all(
    members.map(async (member) => {
      while (performance.now() < until) await pipeline(member);
    }),
  );
  // Nobody has been left waiting.
  expect(members.filter(({ pipelines }) => pipelines === 0)).toEqual([]);
  for (const { client } of members) client.disconnect();
  const { body } = await service.query(organization, 'SELECT client, count(*)::int AS n FROM ledger GROUP BY 1 ORDER BY 1');
  expect(body.rows).toEqual(members.filter(({ committed }) => committed > 0).map(({ id, committed }) => ({ client: id, n: committed })));
});
