import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { describeBackend } from '../conversations/backend-message.ts';
import { encodeFrontend } from '../conversations/frontend-message.ts';
import { logIn } from '../conversations/login.ts';
import { nonsense } from '../conversations/nonsense.ts';
import { createPlainTarget, type PlainTarget, type Target } from '../conversations/target.ts';
import { WireClient } from '../conversations/wire-client.ts';
import { makeOwnCluster, type OwnCluster } from '../support/own-cluster.ts';
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

  it.each(Array.from({ length: 8 }, (_, group) => group))('conversations of group %i go as with Postgres', async (group) => {
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
