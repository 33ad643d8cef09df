import { type ChildProcessWithoutNullStreams, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { mkdir, symlink } from 'node:fs/promises';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import pg from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { eventually } from '../support/eventually.ts';
import { makeInstallation } from '../support/process.ts';
import { makeScratch } from '../support/scratch.ts';
import { REPLY } from './programs/commands.ts';

export type Placement = 'database' | 'schema' | 'directly';

/** A server to run the applications on without Postern, as `postgres://superuser…`, to see whose fault it is. */
const DIRECT_URL = process.env.POSTERN_TEST_DIRECT_URL;
const PLACEMENTS: readonly Placement[] = DIRECT_URL === undefined ? ['database', 'schema'] : ['directly'];
/** The longest start, on a busy machine, runs hundreds of migrations. */
const START_TIMEOUT_MS = 900_000;
const END_TIMEOUT_MS = 30_000;

/** Where an application finds its database: an organization, or a database of a server. */
export interface Place {
  readonly placement: Placement;
  readonly login: {
    readonly host: string;
    readonly port: number;
    readonly user: string;
    readonly password: string;
    readonly database: string;
  };
  readonly url: string;
  /** What the organization's schema is called: `public`, in the `schema` placement by its real name. */
  readonly schema: string;
  /** For files of the application, the same for all its starts. */
  readonly folder: string;
  /** As the organization. */
  query(sql: string): Promise<Record<string, unknown>[]>;
  /** A program that is ended with the place, in its folder. */
  run(command: readonly string[], options?: ProgramOptions): Program;
  /** kill -9 of Postern, which then serves again at the same address. */
  kill(): Promise<void>;
  remove(): Promise<void>;
}

/** An application that serves. */
export interface Running {
  /** Has it keep a text. A text may be there twice when it is told again after a failure. */
  add(note: string): Promise<unknown>;
  /** All the texts that it keeps. */
  list(): Promise<readonly string[]>;
  end(): Promise<void>;
}

export interface Application {
  /** What stands in the way of running it here, such as a package that is not installed. */
  readonly missing?: string | undefined;
  /** Before its first start. */
  readonly prepare?: (place: Place) => Promise<void>;
  /** @param times 1 for its first start here */
  readonly start: (place: Place, times: number) => Promise<Running>;
  /** What else is true of it. */
  readonly more?: (place: () => Place, start: () => Promise<Running>) => void;
}

/** Starts an application twice, kills Postern under it, and looks at what it has kept. */
export function describeApplication(name: string, { missing, prepare, start, more }: Application): void {
  describe.skipIf(missing !== undefined)(missing === undefined ? name : `${name}: ${missing}`, () => {
    describe.each(PLACEMENTS)('in the placement %s', (placement) => {
      let place: Place;
      let running: Running | undefined;
      let times = 0;
      const begin = async () => {
        times += 1;
        running = await start(place, times);
        return running;
      };
      const end = async () => {
        await running?.end();
        running = undefined;
      };
      beforeAll(async () => {
        place = await makePlace(placement);
        await prepare?.(place);
      });
      afterAll(() => place.remove());

      it('starts, and has what it was given when it starts again', async () => {
        const first = await begin();
        await first.add('of the first start');
        expect(await first.list()).toEqual(['of the first start']);
        await end();
        const second = await begin();
        expect(await second.list()).toEqual(['of the first start']);
        await second.add('of the second start');
        expect(setOf(await second.list())).toEqual(setOf(['of the first start', 'of the second start']));
      });

      it('goes on when Postern is killed and started under it', async () => {
        const application = running ?? (await begin());
        const before = await application.list();
        await place.kill();
        let seen: unknown;
        const note = (failure: unknown) => {
          seen = failure;
        };
        await eventually('it reads again', () =>
          application.list().then(
            (list) => list.length === before.length,
            (failure) => void note(failure) === undefined && false,
          ),
        ).catch((failure) => {
          throw new Error(`${failure}; the last failure: ${seen}`);
        });
        await eventually('it writes again', () =>
          application.add('after the kill').then(
            () => true,
            () => false,
          ),
        );
        expect(setOf(await application.list())).toEqual(setOf([...before, 'after the kill']));
        await end();
      });

      more?.(() => place, begin);
    });
  });
}

const setOf = (texts: readonly string[]) => [...new Set(texts)].sort();

/** A Postern, or the server without it. */
interface Host {
  /** For one application. */
  login(): Promise<Place['login']>;
  /** Ends all sessions without a word, and serves again at the same address. */
  kill(): Promise<void>;
  remove(): Promise<void>;
}

/** One for all applications of a file. */
const hosts = new Map<Placement, Promise<Host>>();
afterAll(async () => {
  for (const host of hosts.values()) await (await host).remove();
  hosts.clear();
});

function hostOf(placement: Placement): Promise<Host> {
  const host = hosts.get(placement) ?? (placement === 'directly' ? hostDirectly(DIRECT_URL ?? '') : hostByPostern(placement));
  hosts.set(placement, host);
  return host;
}

async function hostByPostern(placement: 'database' | 'schema'): Promise<Host> {
  const installation = await makeInstallation();
  const ports = { POSTERN_HTTP_PORT: String(await freePort()), POSTERN_PG_PORT: String(await freePort()) };
  const launch = () => installation.start({ ...ports, POSTERN_PLACEMENT: placement });
  let postern = await launch();
  return {
    async login() {
      const { id, apiKey } = await postern.signUp();
      return { host: '127.0.0.1', port: postern.wirePort, user: id, password: apiKey, database: id };
    },
    async kill() {
      await postern.end('SIGKILL');
      postern = await launch();
    },
    remove: () => installation.remove(),
  };
}

async function hostDirectly(url: string): Promise<Host> {
  const { hostname: host, port } = new URL(url);
  const asSuperuser = (statement: string) => withClient({ connectionString: url }, (client) => client.query(statement));
  const names: string[] = [];
  return {
    async login() {
      const name = `direct_${randomBytes(6).toString('hex')}`;
      await asSuperuser(`CREATE ROLE ${name} LOGIN PASSWORD 'direct'`);
      await asSuperuser(`CREATE DATABASE ${name} OWNER ${name}`);
      names.push(name);
      return { host, port: Number(port), user: name, password: 'direct', database: name };
    },
    async kill() {
      await asSuperuser(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '${names.at(-1)}'`);
    },
    async remove() {
      for (const name of names) {
        await asSuperuser(`DROP DATABASE ${name} WITH (FORCE)`);
        await asSuperuser(`DROP ROLE ${name}`);
      }
    },
  };
}

async function makePlace(placement: Placement): Promise<Place> {
  const host = await hostOf(placement);
  const login = await host.login();
  const scratch = await makeScratch();
  const folder = join(scratch.path, 'application');
  await mkdir(folder, { mode: 0o755 });
  // For what an application writes there and loads.
  await symlink(join(HERE, 'node_modules'), join(folder, 'node_modules'));
  const programs: Program[] = [];
  const { user, password, port, database } = login;
  return {
    placement,
    login,
    folder,
    schema: placement === 'schema' ? user : 'public',
    url: `postgres://${user}:${password}@${login.host}:${port}/${database}`,
    query: (sql: string) => withClient(login, async (client) => (await client.query(sql)).rows),
    run(command: readonly string[], options?: ProgramOptions) {
      const program = new Program(command, { cwd: folder, ...options });
      programs.push(program);
      return program;
    },
    kill: () => host.kill(),
    async remove() {
      await Promise.all(programs.map((program) => program.end()));
      await scratch.remove();
    },
  };
}

async function withClient<T>(config: pg.ClientConfig, use: (client: pg.Client) => Promise<T>): Promise<T> {
  const client = new pg.Client(config);
  client.on('error', () => {});
  await client.connect();
  try {
    return await use(client);
  } finally {
    await client.end();
  }
}

export interface ProgramOptions {
  readonly cwd?: string;
  /** Besides PATH. */
  readonly env?: Readonly<Record<string, string>>;
}

/** A process of an application, with those that it starts. */
export class Program {
  readonly #process: ChildProcessWithoutNullStreams;
  readonly #ended: Promise<unknown>;
  #output = '';

  constructor([program = '', ...words]: readonly string[], { cwd, env }: ProgramOptions) {
    // A group of its own, which is ended as a whole.
    this.#process = spawn(program, words, {
      ...(cwd === undefined ? {} : { cwd }),
      env: { PATH: `${NODE_FOLDER}:${process.env.PATH}`, HOME: cwd ?? '/', LC_ALL: 'C.UTF-8', ...env },
      detached: true,
    });
    for (const stream of ['stdout', 'stderr'] as const) {
      this.#process[stream].setEncoding('utf8').on('data', (text: string) => {
        this.#output += text;
      });
    }
    this.#process.stdin.on('error', () => {});
    this.#ended = new Promise((resolve) => {
      this.#process.once('error', (error) => {
        this.#output += error.message;
        resolve(error);
      });
      this.#process.once('close', resolve);
    });
  }

  /** All that it has said so far. */
  get output(): string {
    return this.#output;
  }

  get hasEnded(): boolean {
    return this.#process.pid === undefined || this.#process.exitCode !== null || this.#process.signalCode !== null;
  }

  write(line: string): void {
    this.#process.stdin.write(`${line}\n`);
  }

  /** @throws Error with all that it has said, when it ends instead or takes too long */
  async until(what: string, isSo: () => Promise<boolean> | boolean): Promise<void> {
    const orEnded = async () => (await isSo()) || this.hasEnded;
    await eventually(what, orEnded, START_TIMEOUT_MS).catch((failure) => {
      throw new Error(`${failure.message}\n${this.#output}`);
    });
    if (!(await isSo())) throw new Error(`it has ended instead of this: ${what}\n${this.#output}`);
  }

  /** @throws Error with all that it has said, when it ends otherwise than with 0 */
  async succeeds(): Promise<string> {
    await this.#ended;
    if (this.#process.exitCode !== 0) throw new Error(`${this.#process.spawnargs.join(' ')} has failed\n${this.#output}`);
    return this.#output;
  }

  async end(): Promise<void> {
    this.#signal('SIGTERM');
    const timer = setTimeout(() => this.#signal('SIGKILL'), END_TIMEOUT_MS);
    await this.#ended;
    clearTimeout(timer);
    // What it has started, and did not end.
    this.#signal('SIGKILL');
  }

  #signal(signal: NodeJS.Signals): void {
    try {
      process.kill(-(this.#process.pid ?? Number.NaN), signal);
    } catch {
      // All of them have ended.
    }
  }
}

const HERE = fileURLToPath(new URL('.', import.meta.url));
const NODE_FOLDER = join(HERE, `node_modules/node-24-linux-${process.arch}/bin`);

/** Node 24, which is what most of the applications need. */
export function node(): string {
  const path = join(NODE_FOLDER, 'node');
  if (!existsSync(path)) throw new Error(`${path} is not there: npm run test:applications installs it, on Linux on x64 and arm64`);
  return path;
}

/** A file of one of the packages in this folder. */
export function installed(file: string): string {
  const path = join(HERE, file);
  if (!existsSync(path)) throw new Error(`${path} is not there: npm run test:applications installs it`);
  return path;
}

/** Starts a program of the folder `programs`, and tells it what to do. */
export async function startScript(place: Place, file: string, env: Readonly<Record<string, string>> = {}): Promise<Running> {
  const program = place.run([node(), join(HERE, 'programs', file)], {
    env: { DATABASE_URL: place.url, SCHEMA: place.schema, PLACEMENT: place.placement, ...env },
  });
  const replies = () => program.output.split('\n').filter((line) => line.startsWith(REPLY));
  let asked = 1;
  await program.until(`${file} is ready`, () => replies().length >= asked);
  const ask = async (question: { readonly command: string; readonly note?: string }) => {
    const own = asked++;
    program.write(JSON.stringify(question));
    await program.until(`${file} answers ${question.command}`, () => replies().length > own);
    const { value, error } = JSON.parse(replies()[own]?.slice(REPLY.length) ?? '');
    if (error !== undefined) throw new Error(error);
    return value;
  };
  return {
    add: (note) => ask({ command: 'add', note }),
    list: () => ask({ command: 'list' }),
    end: () => program.end(),
  };
}

export async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  server.close();
  await once(server, 'close');
  return typeof address === 'object' && address !== null ? address.port : 0;
}

/**
 * One JSON call.
 * @throws Error with the reply, when it is not one of 200 to 299
 */
// biome-ignore lint/suspicious/noExplicitAny: what came over the wire is checked by the assertions of the test
export async function call(method: string, url: string, body?: unknown, headers: Readonly<Record<string, string>> = {}): Promise<any> {
  const reply = await fetch(url, {
    method,
    headers: { ...(body === undefined ? {} : { 'content-type': 'application/json' }), ...headers },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  const text = await reply.text();
  if (!reply.ok) throw new Error(`${method} ${url} answered ${reply.status}: ${text}`);
  return text.startsWith('{') || text.startsWith('[') ? JSON.parse(text) : text;
}

/** Whether something answers there, with success. */
export const answers = (url: string): Promise<boolean> =>
  fetch(url).then(
    (reply) => reply.ok,
    () => false,
  );
