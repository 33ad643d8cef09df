import { once } from 'node:events';
import { type FileHandle, mkdtemp, open, rename as renameFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline/promises';
import { parseArgs } from 'node:util';
import * as z from 'zod';
import { BackupError } from '../backups/base-backup.ts';
import { NO_LIMITS, type OrganizationLimits } from '../catalog/limits.ts';
import { NAME_RULES, type Organization, type Placement, parseEmail } from '../catalog/organization.ts';
import { type Config, ConfigError, isSecretSource, readConfig } from '../config.ts';
import { EmbeddedError } from '../embedded/data-directory.ts';
import { ServiceError } from '../errors.ts';
import type { MoveOptions, Mover } from '../moving/mover.ts';
import type { Origin } from '../observation.ts';
import type { Address } from '../placement/citus.ts';
import { ClusterError } from '../placement/cluster.ts';
import type { Changed } from '../router/operator.ts';
import { reasonOf } from '../system-errors.ts';
import { type BackupCommands, backupCommands } from './backups.ts';
import { completionFor, SHELLS } from './completion.ts';
import { findingsTable } from './doctor.ts';
import {
  endSession,
  exportAudit,
  listClusters,
  listKeys,
  listOrganizations,
  listSessions,
  organizationJson,
  type Part,
  revokeKey,
  setLimits,
  showAudit,
  showLimits,
  showOrganization,
  showStatistics,
  verifyAudit,
} from './inspection.ts';
import { type AddedCluster, type OperatorSession, openOperator, printable, type Said } from './operations.ts';
import { cloneOfPast } from './past.ts';
import { runTop } from './top.ts';

/** Asks the person at the terminal. @returns the answer; undefined: there is no terminal */
type Ask = (question: string) => Promise<string | undefined>;

/** What to print, and how the process ends where it is not with 0. */
interface Outcome {
  readonly text: string;
  readonly exitCode: number;
}

/** @returns a message, or one with the data that `--json` shows instead; empty: it has printed what there was */
type Command = (session: OperatorSession, ask: Ask) => Promise<string | Said>;

/** The same with nothing opened: the service may not run. */
type Run = (config: Config) => Promise<string>;

interface Options extends ClusterOptions, MoveCommandOptions {
  readonly yes?: boolean;
  readonly email?: string;
  readonly expires?: string;
  readonly name?: string;
  readonly force?: boolean;
  readonly workers?: string;
  readonly cluster?: string;
  readonly 'to-node'?: string;
  readonly json?: boolean;
  readonly limit?: string;
  readonly after?: string;
  readonly at?: string;
  readonly time?: string;
  readonly system?: string;
  readonly disk?: string;
  readonly sessions?: string;
  readonly 'requests-per-second'?: string;
  readonly 'statement-ms'?: string;
  readonly reset?: boolean;
  readonly file?: string;
}

interface Form {
  /** How many words follow the command's name. */
  readonly words: number;
  /** So many more may follow. */
  readonly moreWords?: number;
  readonly options?: readonly (keyof Options)[];
  /** @throws UsageError */
  command?(words: readonly string[], options: Options): Command;
  /** @throws UsageError */
  run?(words: readonly string[], options: Options): Run;
}

/** Of commands that list something. */
const PART = ['limit', 'after'] as const;

/** Of an organization. */
const LIMITS = ['disk', 'sessions', 'requests-per-second', 'statement-ms', 'reset'] as const;

const FORMS: ReadonlyMap<string, Form> = new Map<string, Form>([
  [
    'org list',
    {
      words: 0,
      options: PART,
      command: (_words, options) => (session) => listOrganizations(session, partOf(options)),
    },
  ],
  [
    'org show',
    {
      words: 1,
      command:
        ([id = '']) =>
        (session) =>
          showOrganization(session, id),
    },
  ],
  ['org rename', { words: 2, command: ([id = '', name = '']) => rename(id, nameOf(name)) }],
  [
    'org limits',
    {
      words: 1,
      options: LIMITS,
      command([id = ''], options) {
        const changes = limitsOf(options);
        return (session) => (changes === undefined ? showLimits(session, id) : setLimits(session, id, changes));
      },
    },
  ],
  ['org create', { words: 2, command: ([name = '', email = '']) => createOrganization(nameOf(name), emailOf(email)) }],
  ['org suspend', { words: 1, command: ([id = '']) => suspend(id) }],
  [
    'org resume',
    {
      words: 1,
      command:
        ([id = '']) =>
        async ({ operator, origin }) =>
          statusOf(await operator.resume(id, origin)),
    },
  ],
  ['org drop', { words: 1, options: ['yes'], command: ([id = ''], { yes }) => drop(id, yes === true) }],
  [
    'cluster list',
    {
      words: 0,
      options: PART,
      command: (_words, options) => (session) => listClusters(session, partOf(options)),
    },
  ],
  [
    'cluster add',
    {
      words: 2,
      options: ['placement', 'weight', 'cap'],
      command: ([name = '', url = ''], options) => addCluster(clusterToAdd(name, url, options)),
    },
  ],
  ['cluster drain', { words: 1, command: ([name = '']) => drainCluster(name, true) }],
  ['cluster open', { words: 1, command: ([name = '']) => drainCluster(name, false) }],
  ['cluster remove', { words: 1, command: ([name = '']) => removeCluster(name) }],
  [
    'org clone',
    {
      words: 1,
      options: ['name', 'expires', 'force'],
      command: ([id = ''], { name, expires, force }) =>
        clone(id, name === undefined ? undefined : nameOf(name), lifetimeMsOf(expires ?? '1d'), force === true),
    },
  ],
  [
    'org at',
    {
      words: 1,
      options: ['time', 'expires', 'name', 'json'],
      run([id = ''], { time, expires, name, json }) {
        if (time === undefined) throw new UsageError('', usageOf('org at'));
        const lifetimeMs = lifetimeMsOf(expires ?? '1d');
        const wanted = { id, time: timeOf(time), name: name === undefined ? undefined : nameOf(name) };
        return async (config) => {
          const made = await cloneOfPast(config, { ...wanted, expiresAt: new Date(Date.now() + lifetimeMs) });
          const note = made.isAtEnd ? `the archive ends before ${wanted.time.toISOString()}: this is its end\n` : '';
          const { text, data } = cloned(made);
          return json === true ? JSON.stringify({ ...data, isAtEnd: made.isAtEnd }) : `${note}${text}`;
        };
      },
    },
  ],
  [
    'org move',
    {
      words: 1,
      options: ['to', 'to-node', 'placement', 'pause', 'force', 'replicate', 'finish', 'abort'],
      command: ([id = ''], options) => move(id, options),
    },
  ],
  ['org dump', { words: 1, options: ['file'], command: ([id = ''], { file }) => dump(id, file) }],
  ['org restore', { words: 1, options: ['file'], command: ([id = ''], { file }) => restore(id, file) }],
  [
    'key list',
    {
      words: 1,
      options: PART,
      command:
        ([id = ''], options) =>
        (session) =>
          listKeys(session, id, partOf(options)),
    },
  ],
  ['key issue', { words: 1, command: ([id = '']) => issueKey(id) }],
  [
    'key revoke',
    {
      words: 1,
      command:
        ([id = '']) =>
        (session) =>
          revokeKey(session, id),
    },
  ],
  [
    'session list',
    {
      words: 0,
      moreWords: 1,
      options: PART,
      command:
        ([id], options) =>
        (session) =>
          listSessions(session, id, partOf(options)),
    },
  ],
  [
    'session kill',
    {
      words: 1,
      command:
        ([id = '']) =>
        (session) =>
          endSession(session, id),
    },
  ],
  [
    'audit show',
    {
      words: 1,
      options: PART,
      command:
        ([id = ''], options) =>
        (session) =>
          showAudit(session, id, partOf(options)),
    },
  ],
  [
    'audit verify',
    {
      words: 1,
      command:
        ([id = '']) =>
        (session) =>
          verifyAudit(session, id),
    },
  ],
  [
    'audit export',
    {
      words: 1,
      command:
        ([id = '']) =>
        (session) =>
          exportAudit(session, id),
    },
  ],
  ['stats', { words: 0, options: PART, command: (_words, options) => (session) => showStatistics(session, partOf(options)) }],
  [
    'top',
    {
      words: 0,
      options: ['limit'],
      command(_words, options) {
        if (options.json === true) throw new UsageError('top is for people: stats has --json', usageOf('top'));
        const { limit } = partOf(options);
        return async ({ activity }) => {
          await runTop(activity, limit);
          return '';
        };
      },
    },
  ],
  [
    'citus setup',
    {
      words: 0,
      options: ['workers', 'cluster'],
      command: (_words, { workers = '', cluster }) => setUpCitus(addressesOf(workers), cluster),
    },
  ],
  ['doctor', { words: 0, command: () => doctor }],
  ['citus disable', { words: 1, options: ['cluster'], command: ([worker = ''], { cluster }) => disableWorker(addressOf(worker), cluster) }],
  ['backup create', { words: 0, run: (_words, { system }) => backup(system, (commands) => commands.create()) }],
  [
    'backup list',
    {
      words: 0,
      options: ['json', 'system'],
      run: (_words, { json, system }) => backup(system, (commands) => commands.list(json === true)),
    },
  ],
  [
    'backup verify',
    {
      words: 0,
      moreWords: 1,
      options: ['system'],
      run([time], { system }) {
        const base = time === undefined ? undefined : timeOf(time);
        return backup(system, (commands) => commands.verify(base));
      },
    },
  ],
  ['backup prune', { words: 0, options: ['system'], run: (_words, { system }) => backup(system, (commands) => commands.prune()) }],
  [
    'backup restore',
    {
      words: 0,
      options: ['to', 'at', 'system'],
      run(_words, { to, at, system }) {
        if (to === undefined) throw new UsageError('', usageOf('backup restore'));
        const time = at === undefined ? undefined : timeOf(at);
        return backup(system, (commands) => commands.restore(to, time));
      },
    },
  ],
  [
    'invite',
    {
      words: 0,
      options: ['email', 'expires'],
      command: (_words, { email, expires }) => invite(email === undefined ? undefined : emailOf(email), lifetimeMsOf(expires ?? '7d')),
    },
  ],
]);

/**
 * @returns the command, which returns what is left to print
 * @throws UsageError, also for commands that need no service
 */
export function parseCommand(args: readonly string[]): (session: OperatorSession, ask: Ask) => Promise<string | Outcome> {
  const { name, form, words, options } = readForm(args);
  if (form.command === undefined) throw new UsageError('', usageOf(name));
  const command = form.command(words, options);
  return async (session, ask) => {
    const said = await command(session, ask);
    if (said === '') return said;
    const isMessage = typeof said === 'string';
    const plain = isMessage ? said : said.text;
    const text = options.json === true ? JSON.stringify(isMessage ? { message: said } : said.data) : plain;
    return isMessage || said.exitCode === undefined ? text : { text, exitCode: said.exitCode };
  };
}

/** @returns undefined: the command runs beside the service @throws UsageError */
function parseRun(args: readonly string[]): Run | undefined {
  const { form, words, options } = readForm(args);
  const run = form.run?.(words, options);
  // What lists something has a form of its own.
  if (run === undefined || options.json !== true || form.options?.includes('json') === true) return run;
  return async (config) => JSON.stringify({ message: await run(config) });
}

/** @throws UsageError */
function readForm(args: readonly string[]): {
  readonly name: string;
  readonly form: Form;
  readonly words: string[];
  readonly options: Options;
} {
  if (args.length === 0) throw new UsageError('', USAGE);
  const { values, positionals } = parse(args);
  const [noun = '', verb = ''] = positionals;
  const name = FORMS.has(noun) ? noun : `${noun} ${verb}`.trim();
  const form = FORMS.get(name);
  if (form === undefined) throw new UsageError(`there is no command ${printable(name)}`, usageOf(noun));
  const words = positionals.slice(name.split(' ').length);
  if (words.length < form.words || words.length > form.words + (form.moreWords ?? 0)) throw new UsageError('', usageOf(name));
  const options = form.options ?? [];
  const other = Object.keys(values).find((option) => option !== 'json' && !options.includes(option as keyof Options));
  if (other !== undefined) throw new UsageError(`${name} has no option --${other}`, usageOf(name));
  return { name, form, words, options: values };
}

function backup(system: string | undefined, use: (commands: BackupCommands) => Promise<string>): Run {
  return (config) => use(backupCommands(config, system));
}

/** @throws UsageError */
function timeOf(text: string): Date {
  const { success, data } = z.iso.datetime({ offset: true }).safeParse(text);
  if (success) return new Date(data);
  throw new UsageError(`${printable(text)} is no time with a zone: 2026-11-27T09:30:00Z, 2026-11-27T10:30:00+01:00`);
}

/** @throws UsageError */
function partOf({ limit, after }: Options): Part {
  return { limit: limit === undefined ? undefined : whole('--limit', limit, 1, LIMIT_MAX), after };
}

function parse(args: readonly string[]) {
  try {
    return parseArgs({
      args: [...args],
      options: {
        yes: { type: 'boolean' },
        email: { type: 'string' },
        expires: { type: 'string' },
        placement: { type: 'string' },
        weight: { type: 'string' },
        cap: { type: 'string' },
        name: { type: 'string' },
        force: { type: 'boolean' },
        workers: { type: 'string' },
        cluster: { type: 'string' },
        to: { type: 'string' },
        json: { type: 'boolean' },
        at: { type: 'string' },
        time: { type: 'string' },
        system: { type: 'string' },
        file: { type: 'string' },
        'to-node': { type: 'string' },
        pause: { type: 'string' },
        replicate: { type: 'boolean' },
        finish: { type: 'boolean' },
        abort: { type: 'boolean' },
        disk: { type: 'string' },
        sessions: { type: 'string' },
        'requests-per-second': { type: 'string' },
        'statement-ms': { type: 'string' },
        reset: { type: 'boolean' },
        limit: { type: 'string' },
        after: { type: 'string' },
      },
      allowPositionals: true,
    });
  } catch (cause) {
    const [reason = ''] = (cause instanceof Error ? cause.message : '').split('. ');
    const words = args.slice(0, 2).filter((word) => !word.startsWith('-'));
    throw new UsageError(printable(reason), usageOf(words.join(' ')), { cause });
  }
}

/** Something needs the operator's attention. */
const NEEDS_ATTENTION = 4;

async function doctor(session: OperatorSession): Promise<Said> {
  const findings = await session.examine();
  const exitCode = findings.some(({ needsAttention }) => needsAttention) ? NEEDS_ATTENTION : 0;
  return { text: findingsTable(findings), data: { data: findings }, exitCode };
}

function suspend(id: string): Command {
  return async ({ operator, origin }) => changed(await operator.suspend(id, origin), 'it has been asked to end');
}

function drop(id: string, isSure: boolean): Command {
  return async ({ operator, origin }, ask) => {
    if (!isSure) await confirmDrop(await operator.organization(id), ask);
    return changed(await operator.drop(id, origin), 'the drop is completed by the running service when it has ended');
  };
}

/** @throws ServiceError `invalid_request` unless the person at the terminal writes the organization's id */
async function confirmDrop({ id, name, email }: Organization, ask: Ask): Promise<void> {
  const answer = await ask(`This removes ${printable(name)} (${printable(email)}) with all its data, for good. Type its id to go on: `);
  if (answer === undefined) {
    throw new ServiceError(
      'invalid_request',
      `nothing was dropped: org drop asks first, and here is no terminal; give --yes to drop ${id}`,
    );
  }
  if (answer.trim() !== id) throw new ServiceError('invalid_request', `nothing was dropped: that is not ${id}`);
}

function createOrganization(orgName: string, email: string): Command {
  return async ({ signUps, origin }) => {
    const { organization, apiKey } = await signUps.create({ orgName, email }, origin);
    const text = `${statusOf(organization)}; its key, shown only now:\n\nexport ORG=${organization.id} API_KEY=${apiKey}`;
    return { text, data: { ...organizationJson(organization), apiKey } };
  };
}

function rename(id: string, name: string): Command {
  return async ({ catalog, origin }) => {
    const organization = await catalog.organizations.rename(id, name, origin);
    return { text: `${id} is ${printable(name)}`, data: organizationJson(organization) };
  };
}

function addCluster(cluster: AddedCluster): Command {
  return async ({ clusters }) => {
    await clusters.add(cluster);
    return `${cluster.name} takes organizations`;
  };
}

function drainCluster(name: string, isDraining: boolean): Command {
  return async ({ clusters }) => {
    await clusters.setDraining(name, isDraining);
    return isDraining ? `${name} takes no more organizations` : `${name} takes organizations`;
  };
}

function removeCluster(name: string): Command {
  return async ({ clusters }) => {
    await clusters.remove(name);
    return `${name} is removed; nothing on its server has been changed`;
  };
}

function clone(id: string, name: string | undefined, lifetimeMs: number, force: boolean): Command {
  return async ({ operator, clones, origin }) => {
    const source = await operator.organization(id);
    const wanted = { source, name, expiresAt: new Date(Date.now() + lifetimeMs), force };
    return cloned(await clones.create(wanted, origin));
  };
}

function cloned({ organization, apiKey, expiresAt }: Awaited<ReturnType<OperatorSession['clones']['create']>>): Said {
  const text = `${statusOf(organization)} until ${expiresAt.toISOString()}; its key, shown only now:\n\nexport ORG=${organization.id} API_KEY=${apiKey}`;
  return { text, data: { ...organizationJson(organization), expiresAt, apiKey } };
}

function move(id: string, { 'to-node': node, ...options }: Options): Command {
  if (node !== undefined && Object.keys(options).length === 0) {
    const target = addressOf(node);
    return async ({ operator, citus, origin }) => citus.move(await operator.organization(id), target, origin);
  }
  const command = node === undefined ? parseMoveCommand(options) : undefined;
  if (command === undefined) throw new UsageError('', usageOf('org move'));
  return ({ mover, origin }) => runMoveCommand(mover, id, command, origin);
}

function dump(id: string, file: string | undefined): Command {
  return async ({ operator, dumps }) => {
    const organization = await operator.organization(id);
    if (file === undefined && process.stdout.isTTY)
      throw new ServiceError('invalid_request', 'a dump is not for a terminal: give --file, or send it elsewhere');
    if (file === undefined) {
      await dumps.dump(organization, STANDARD_OUTPUT);
      return '';
    }
    // A former dump stays until this one is whole. A device or a pipe is written to as it is.
    const isReplaced = (await stat(file).catch(() => undefined))?.isFile() !== false;
    const path = isReplaced ? `${file}.unfinished` : file;
    if (isReplaced) await rm(path, { force: true });
    const to = await openFile(path, isReplaced ? 'wx' : 'w');
    try {
      await dumps.dump(organization, to.fd);
      if (isReplaced) {
        await to.sync();
        await renameFile(path, file);
      }
    } catch (error) {
      if (isReplaced) await rm(path, { force: true });
      throw error;
    } finally {
      await to.close();
    }
    return `${id} is dumped to ${printable(file)}`;
  };
}

/** The dump is read several times, so what comes from standard input is kept in a file meanwhile. */
function restore(id: string, file: string | undefined): Command {
  return async ({ operator, dumps }) => {
    const organization = await operator.organization(id);
    if (file === undefined && process.stdin.isTTY)
      throw new ServiceError('invalid_request', 'a dump comes from standard input, and not from a terminal: give --file');
    const folder = await mkdtemp(join(tmpdir(), 'postern-'));
    try {
      const read = file ?? join(folder, 'dump');
      if (file === undefined) await writeFile(read, process.stdin, { mode: 0o600 });
      else await (await openFile(file, 'r')).close();
      const tables = await dumps.restore(organization, read);
      return `${id} has what was in the dump: rows of ${tables} table${tables === 1 ? '' : 's'}`;
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  };
}

const STANDARD_OUTPUT = 1;

/** @throws ServiceError `invalid_request` */
function openFile(path: string, flags: 'r' | 'w' | 'wx'): Promise<FileHandle> {
  return open(path, flags, 0o600).catch((cause: unknown) => {
    throw new ServiceError('invalid_request', `${printable(path)} cannot be ${flags === 'r' ? 'read' : 'written'}: ${reasonOf(cause)}`, {
      cause,
    });
  });
}

function issueKey(id: string): Command {
  return async ({ operator, origin }) => {
    const apiKey = await operator.issueKey(id, origin);
    return { text: `the new key of ${id}, shown only now: ${apiKey}`, data: { organizationId: id, apiKey } };
  };
}

function invite(email: string | undefined, lifetimeMs: number): Command {
  return async ({ operator }) => {
    const expiresAt = new Date(Date.now() + lifetimeMs);
    const token = await operator.invite({ email, expiresAt });
    const text = `an invitation for ${email ?? 'anybody'} until ${expiresAt.toISOString()}, shown only now: ${token}`;
    return { text, data: { email: email ?? null, expiresAt, invite: token } };
  };
}

function setUpCitus(workers: readonly Address[], cluster: string | undefined): Command {
  return ({ citus }) => citus.setUp(workers, cluster);
}

function disableWorker(worker: Address, cluster: string | undefined): Command {
  return async ({ citus }) => {
    const refused = await citus.disable(worker, cluster);
    return `${worker.host}:${worker.port} is disabled; organizations refused until citus setup is run with it: ${refused}`;
  };
}

function statusOf({ id, status }: Organization): string {
  return `${id} is ${status}`;
}

/** @param rest what happens to processes that have not ended */
function changed({ organization, running }: Changed, rest: string): Said {
  const status = statusOf(organization);
  const text = running === undefined ? status : `${status}; still running: ${running}; ${rest}`;
  return { text, data: { ...organizationJson(organization), running: running ?? null } };
}

/** The arguments are no command. */
export class UsageError extends Error {
  override readonly name = 'UsageError';
  /** How the command is written, where the message does not say what to change. */
  readonly usage: string;

  /** @param message empty where nothing can be said but how the command is written */
  constructor(message: string, usage = '', options?: ErrorOptions) {
    super(message, options);
    this.usage = usage;
  }
}

/** All commands, with what each does below it or beside it. */
const USAGE = `usage: postern admin <command>

  --json with any command: one object instead of text; --limit <n> and --after <id> with one that lists: a part of it, and the next
  exit codes: 0 done, 1 failed, 2 no such command, 3 not found, 4 needs attention (doctor)

  org list                     all organizations
  org show <id>                one, with what it has and uses
  org rename <id> <name>
  org limits <id> [--disk <size>] [--sessions <n>] [--requests-per-second <n>] [--statement-ms <n>] [--reset]
                               its own limits, at once and for its clones too, and all that apply; a size has a unit as in postgresql.conf:
                               500MB, 10GB (0: any size); --reset takes the defaults again, except for those given with it
  org create <name> <email>    a new organization with its key, whatever POSTERN_SIGNUP says
  org suspend <id>             ends its sessions and refuses its key until it is resumed
  org resume <id>
  org drop <id> [--yes]        removes its data, role and keys for good; its audit log is kept; asks first, unless --yes is given
  org clone <id> [--name <name>] [--expires <time>] [--force]
                               a copy of it with a key of its own, dropped after 1d, or another time up to 7d: 30m, 12h; its clients wait
                               meanwhile; --force ends transactions and pinned sessions that do not end
  org at <id> --time <time> [--name <name>] [--expires <time>]
                               a clone of what it was at that time, such as 2026-11-27T09:30:00Z, on a server restored beside from backups;
                               nobody waits meanwhile
  org move <id> [--to <cluster>] [--placement database|schema] [--pause <seconds>] [--force] [--replicate]
                               moves it while its clients wait, for at most 60 seconds or those given; what is not done by then is undone;
                               the former copy is kept; --force as above; --replicate copies most rows before they wait, which a large
                               database does anyway on its way to another server, if both servers allow it
  org move <id> --to-node <host:port>
                               moves its tables to another worker of Citus
  org move <id> --finish       removes the former copy
  org move <id> --abort        undoes a move that has not been completed; when its command was killed, the running service does so
  org dump <id> [--file <file>]
                               all it has, to standard output or a file, in the custom format of pg_dump
  org restore <id> [--file <file>]
                               loads such a dump, from standard input or a file, into an organization that has nothing yet
  key list <org>               its keys, never their secrets
  key revoke <key id>          ends a key, and the sessions that were opened with it
  key issue <id>               a new admin key for an organization that has lost its own; its other admin keys become invalid
  session list [<org>]         who is connected, at both doors of every process
  session kill <id>            ends a session
  audit show <org>             its latest audit entries
  audit verify <org>           looks for entries that have been changed or removed; 1 if there are any
  audit export <org>           all entries, a line of JSON each, the newest first
  stats                        what organizations have done since the service started, the busiest first
  top [--limit <n>]            the same by the second, on a terminal, until q is pressed
  completion bash|zsh          a script for the shell: source <(postern admin completion bash)
  invite [--email <email>] [--expires <time>]
                               an invitation to sign up once, for that address only, within 7d, or another time: 30m, 12h, 90d
  backup create                a base backup of the embedded server, beside the running service
  backup list [--json] [--system <id>]
                               the base backups, and since when any time can be restored; --system, here and below: of this server, by its
                               system identifier, where the folder has several and the data directory is lost
  backup verify [<backup>] [--system <id>]
                               restores the newest base backup, or that one, beside the service, reads it and removes it
  backup prune [--system <id>]
                               removes what is not needed to restore any second of the last POSTERN_BACKUP_KEEP_DAYS, as the service does
  backup restore --to <folder> [--at <time>] [--system <id>]
                               makes a data directory of what there was at that time, such as 2026-11-27T09:30:00Z, or of all that is
                               archived; the service must not run
  cluster list                 the PostgreSQL servers that organizations live on
  cluster add <name> <url> [--placement database,schema] [--weight <n>] [--cap <n>]
                               sets a server up and has new organizations added to it; <url> is env:NAME or file:/path, where each
                               process of the service finds its postgres:// URL
  cluster drain <name>         adds no more organizations to it
  cluster open <name>          adds organizations to it again
  cluster remove <name>        when no organization lives there
  doctor                       what needs attention, with exit code 4: of Node, the PostgreSQL servers, limits, TLS, clocks, disks, backups and
                               addresses
  citus setup --workers <host:port,…> [--cluster <name>]
                               makes the default cluster, or that one, a Citus coordinator of these workers; again for each new one; tells
                               what it may not do
  citus disable <host:port> [--cluster <name>]
                               does without a worker that is down, and refuses its organizations, until citus setup is run with it again`;

/**
 * @param name of a command such as `org drop`, or the first word of several
 * @returns what is said of these commands, and of all where there is none of that name
 */
function usageOf(name: string): string {
  const [heading = '', ...entries] = USAGE.split(/(?<!\n)\n+(?= {2}\S)/);
  const found = entries.filter((entry) => entry.startsWith(`  ${name} `));
  return found.length === 0 ? USAGE : `${heading}\n\n${found.join('\n')}`;
}

/** Ctrl-D is an empty answer. */
async function ask(question: string): Promise<string | undefined> {
  if (!process.stdin.isTTY || !process.stderr.isTTY) return undefined;
  const terminal = createInterface({ input: process.stdin, output: process.stderr });
  const closed = once(terminal, 'close').then(() => '');
  try {
    return await Promise.race([terminal.question(question), closed]);
  } finally {
    terminal.close();
  }
}

/** @throws UsageError */
function addressesOf(text: string): Address[] {
  return text.split(',').map(addressOf);
}

/** @throws UsageError */
function addressOf(text: string): Address {
  const [, host, port] = /^([\w.-]+):(\d{1,5})$/.exec(text.trim()) ?? [];
  if (host === undefined) throw new UsageError(`${printable(text)} is no address with a port: db1.example.com:5432`);
  return { host, port: Number(port) };
}

/** @throws UsageError */
function nameOf(text: string): string {
  const name = text.trim();
  const broken = NAME_RULES.find(({ isKept }) => !isKept(name));
  if (broken !== undefined) throw new UsageError(`the name ${broken.message}`);
  return name;
}

/** @throws UsageError */
function emailOf(text: string): string {
  const email = parseEmail(text.trim());
  if (email === undefined) throw new UsageError(`${printable(text)} is no valid e-mail address`);
  return email;
}

const UNIT_MS: Readonly<Record<string, number>> = { m: 60_000, h: 3_600_000, d: 86_400_000 };
const LIFETIME_MAX_DAYS = 365;

/** @throws UsageError */
function lifetimeMsOf(text: string): number {
  const [, count, unit = ''] = /^([1-9]\d{0,5})([mhd])$/.exec(text) ?? [];
  const lifetimeMs = Number(count) * (UNIT_MS[unit] ?? Number.NaN);
  if (lifetimeMs <= LIFETIME_MAX_DAYS * 86_400_000) return lifetimeMs;
  throw new UsageError(`--expires is a number of minutes, hours or days, at most ${LIFETIME_MAX_DAYS}d: 30m, 12h, 7d`);
}

/** The units of postgresql.conf; 1 kB is 1,024 bytes. */
const UNIT_BYTES: ReadonlyMap<string, number> = new Map(['B', 'kB', 'MB', 'GB', 'TB'].map((unit, power) => [unit, 1_024 ** power]));
const DISK_MIN_BYTES = 1_024 ** 2;
const DISK_MAX_BYTES = 1_024 ** 5;

/** @throws UsageError */
function diskBytesOf(text: string): number {
  if (text === '0') return 0;
  const [, count, unit = ''] = /^(\d{1,15}(?:\.\d{1,6})?) ?([kMGT]?B)$/.exec(text) ?? [];
  const size = Math.round(Number(count) * (UNIT_BYTES.get(unit) ?? Number.NaN));
  if (size >= DISK_MIN_BYTES && size <= DISK_MAX_BYTES) return size;
  throw new UsageError('--disk is a size with a unit (B, kB, MB, GB, TB), from 1MB to 1024TB, or 0 for any size: 500MB, 10GB');
}

/** @returns undefined: none is to be changed @throws UsageError */
function limitsOf(options: Options): Partial<OrganizationLimits> | undefined {
  const { disk, reset } = options;
  const number = (option: 'sessions' | 'requests-per-second' | 'statement-ms', min: number, max: number) => {
    const text = options[option];
    return text === undefined ? undefined : whole(`--${option}`, text, min, max);
  };
  const given: Partial<Record<keyof OrganizationLimits, number | undefined>> = {
    diskBytes: disk === undefined ? undefined : diskBytesOf(disk),
    sessions: number('sessions', 1, LIMIT_MAX),
    requestsPerSecond: number('requests-per-second', 1, LIMIT_MAX),
    statementMs: number('statement-ms', 0, TIMEOUT_MAX_MS),
  };
  const changes: Partial<OrganizationLimits> = Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined));
  if (reset === true) return { ...NO_LIMITS, ...changes };
  return Object.keys(changes).length === 0 ? undefined : changes;
}

/** As they are written. */
interface ClusterOptions {
  readonly placement?: string;
  readonly weight?: string;
  readonly cap?: string;
}

const WEIGHT_MAX = 1_000;
const CAP_MAX = 10_000_000;
const LIMIT_MAX = 1_000_000;
/** The longest timeout that PostgreSQL has. */
const TIMEOUT_MAX_MS = 2_147_483_647;

/** @throws UsageError */
function clusterToAdd(name: string, urlSource: string, { placement = 'database,schema', weight = '1', cap }: ClusterOptions): AddedCluster {
  if (!/^[a-z][a-z0-9_-]{0,29}$/.test(name))
    throw new UsageError('the name of a cluster has up to 30 of a-z, 0-9, _ and -, a letter first');
  if (!isSecretSource(urlSource)) {
    throw new UsageError('the URL is given as env:NAME or file:/path, not itself: it has a password, and others see command lines');
  }
  return {
    name,
    urlSource,
    placements: placementsOf(placement),
    weight: whole('--weight', weight, 1, WEIGHT_MAX),
    cap: cap === undefined ? null : whole('--cap', cap, 0, CAP_MAX),
  };
}

function placementsOf(text: string): Placement['kind'][] {
  return text.split(',').map((kind) => {
    if (kind !== 'database' && kind !== 'schema') throw new UsageError('--placement is database, schema or both, separated by a comma');
    return kind;
  });
}

function whole(option: string, text: string, min: number, max: number): number {
  const value = /^\d+$/.test(text) ? Number(text) : Number.NaN;
  if (value >= min && value <= max) return value;
  throw new UsageError(`${option} is a whole number from ${min} to ${max}`);
}

/** The options of `org move`. */
interface MoveCommandOptions {
  readonly to?: string;
  readonly placement?: string;
  readonly pause?: string;
  readonly force?: boolean;
  readonly replicate?: boolean;
  readonly finish?: boolean;
  readonly abort?: boolean;
}

/** What an operator wants. */
type MoveCommand = 'finish' | 'abort' | MoveOptions;

const PAUSE_S = 60;
const PAUSE_MAX_S = 3_600;

/** @returns undefined if the options do not go together @throws UsageError */
function parseMoveCommand({ to, placement, pause, force, replicate, finish, abort }: MoveCommandOptions): MoveCommand | undefined {
  const moves = [to, placement, pause, force, replicate].filter((option) => option !== undefined);
  if (finish === true || abort === true) return moves.length > 0 || finish === abort ? undefined : finish ? 'finish' : 'abort';
  if (to === undefined && placement === undefined) return undefined;
  const pauseS = Number(/^[1-9]\d{0,4}$/.exec(pause ?? String(PAUSE_S))?.[0]);
  if (!(pauseS <= PAUSE_MAX_S)) throw new UsageError(`--pause is a number of seconds, at most ${PAUSE_MAX_S}`);
  return { cluster: to, kind: kindOf(placement), force: force === true, replicate: replicate === true, pauseMs: 1_000 * pauseS };
}

function kindOf(placement: string | undefined): Placement['kind'] | undefined {
  if (placement === undefined || placement === 'database' || placement === 'schema') return placement;
  throw new UsageError('--placement is database or schema');
}

/** @returns what to print */
async function runMoveCommand(mover: Mover, id: string, command: MoveCommand, origin: Origin): Promise<string> {
  if (command === 'finish') {
    await mover.finish(id, origin);
    return `the former copy of ${id} is removed`;
  }
  if (command === 'abort') {
    await mover.abort(id);
    return `${id} stays where it is; nothing of the move is left`;
  }
  const { organization, tables, rows, pausedMs, firstPauseMs, obstacle, isOpen } = await mover.move(id, command, origin);
  const { kind, cluster } = organization.placement;
  const waits = [firstPauseMs, pausedMs].flatMap((ms) => (ms === undefined ? [] : Math.ceil(ms)));
  const all = obstacle === undefined ? '' : `all rows were copied meanwhile: ${obstacle}\n`;
  return `${id} is in a ${kind} of its own on ${cluster}: ${rows} rows in ${tables} tables are the same there; its clients waited ${waits.join(' and ')} ms
${all}its former copy is kept until: postern admin org move ${id} --finish${isOpen ? OPEN : ''}`;
}

const OPEN = `
its roles on the former server could not be closed: see that every process of the service answers, and finish the move soon`;

/** The script of `completion`, which needs no service; undefined: it is another command. @throws UsageError */
function completion([noun, shell, ...rest]: readonly string[]): string | undefined {
  if (noun !== 'completion') return undefined;
  const known = SHELLS.find((name) => name === shell);
  if (known === undefined || rest.length > 0) throw new UsageError('', usageOf('completion'));
  const commands = [...FORMS].map(([name, { options = [] }]) => ({ name, options: [...options, 'json'] }));
  return completionFor(known, commands);
}

/**
 * `postern admin …`: commands for operators, run beside the service and with the same environment. Prints the outcome, and sets the
 * process's exit code: 1 if the command failed, 2 if there is no such command, 3 if what it is about was not found.
 * @param args what follows `admin`
 * @param environment as `process.env`
 */
export async function runAdminCommand(args: readonly string[], environment: Readonly<Record<string, string | undefined>>): Promise<void> {
  try {
    const script = completion(args);
    const run = script === undefined ? parseRun(args) : undefined;
    if (script !== undefined) process.stdout.write(script);
    else if (run !== undefined) process.stdout.write(`${await run(readConfig(environment))}\n`);
    else await runBesideService(parseCommand(args), environment);
  } catch (error) {
    const isUsage = error instanceof UsageError;
    const expected = [UsageError, ConfigError, BackupError, EmbeddedError, ClusterError, ServiceError];
    const isExpected = expected.some((kind) => error instanceof kind);
    const text = !(error instanceof Error) ? String(error) : isExpected ? error.message.split('\n').map(printable).join('\n') : error.stack;
    const parts = [text === '' ? '' : `postern: ${text}`, isUsage ? error.usage : ''];
    process.stderr.write(`${parts.filter((part) => part !== '').join('\n\n')}\n`);
    process.exitCode = isUsage ? 2 : error instanceof ServiceError && error.kind === 'not_found' ? 3 : 1;
  }
}

async function runBesideService(
  command: ReturnType<typeof parseCommand>,
  environment: Readonly<Record<string, string | undefined>>,
): Promise<void> {
  const session = await openOperator(readConfig(environment));
  try {
    const outcome = await command(session, ask);
    const { text, exitCode } = typeof outcome === 'string' ? { text: outcome, exitCode: 0 } : outcome;
    if (text !== '') process.stdout.write(`${text}\n`);
    process.exitCode = exitCode;
  } finally {
    await session.close();
  }
}
