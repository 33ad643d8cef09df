import { parseArgs } from 'node:util';
import type { Organization } from '../catalog/organizations/organization.ts';
import { ServiceError } from '../errors.ts';
import type { Changed } from '../router/operator.ts';
import type { Address } from '../router/placement/shared-database/citus/address.ts';
import { addressesOf, addressOf, emailOf, lifetimeMsOf, nameOf } from './arguments.ts';
import { type ClusterOptions, clusterToAdd } from './cluster-arguments.ts';
import type { AddedCluster } from './clusters.ts';
import { type MoveCommandOptions, parseMoveCommand, runMoveCommand } from './move-command.ts';
import type { OperatorSession } from './open-operator.ts';
import { organizationTable, printable } from './table.ts';
import { UsageError } from './usage-error.ts';

/** Asks the person at the terminal. @returns the answer; undefined: there is no terminal */
export type Ask = (question: string) => Promise<string | undefined>;

/** @returns what to print */
export type Command = (session: OperatorSession, ask: Ask) => Promise<string>;

const USAGE = `usage: postern admin <command>

  org list                     all organizations
  org create <name> <email>    a new organization with its key, whatever POSTERN_SIGNUP says
  org suspend <id>             ends its sessions and refuses its key until it is resumed
  org resume <id>
  org drop <id> [--yes]        removes its data, role and keys for good; its audit log is kept; asks first, unless --yes is given
  org clone <id> [--name <name>] [--expires <time>] [--force]
                               a copy of it with a key of its own, dropped after 1d, or another time up to 7d: 30m, 12h; its clients wait
                               meanwhile; --force ends transactions and pinned sessions that do not end
  org move <id> [--to <cluster>] [--placement database|schema] [--pause <seconds>] [--force] [--replicate]
                               moves it while its clients wait, for at most 60 seconds or those given; what is not done by then is undone;
                               the former copy is kept; --force as above; --replicate copies most rows before they wait, which a large
                               database does anyway on its way to another server, if both servers allow it
  org move <id> --to-node <host:port>
                               moves its tables to another worker of Citus
  org move <id> --finish       removes the former copy
  org move <id> --abort        undoes a move that has not been completed; when its command was killed, the running service does so
  key issue <id>               a new admin key for an organization that has lost its own; its other admin keys become invalid
  invite [--email <email>] [--expires <time>]
                               an invitation to sign up once, for that address only, within 7d, or another time: 30m, 12h, 90d
  cluster list                 the PostgreSQL servers that organizations live on
  cluster add <name> <url> [--placement database,schema] [--weight <n>] [--cap <n>]
                               sets a server up and has new organizations added to it; <url> is env:NAME or file:/path, where each
                               process of the service finds its postgres:// URL
  cluster drain <name>         adds no more organizations to it
  cluster open <name>          adds organizations to it again
  cluster remove <name>        when no organization lives there
  citus setup --workers <host:port,…> [--cluster <name>]
                               makes the default cluster, or that one, a Citus coordinator of these workers; again for each new one; tells
                               what it may not do
  citus disable <host:port> [--cluster <name>]
                               does without a worker that is down, and refuses its organizations, until citus setup is run with it again`;

interface Options extends ClusterOptions, MoveCommandOptions {
  readonly yes?: boolean;
  readonly email?: string;
  readonly expires?: string;
  readonly name?: string;
  readonly force?: boolean;
  readonly workers?: string;
  readonly cluster?: string;
  readonly 'to-node'?: string;
}

interface Form {
  /** How many words follow the command's name. */
  readonly words: number;
  readonly options?: readonly (keyof Options)[];
  /** @throws UsageError */
  command(words: readonly string[], options: Options): Command;
}

const FORMS: ReadonlyMap<string, Form> = new Map<string, Form>([
  [
    'org list',
    {
      words: 0,
      command:
        () =>
        async ({ operator }) =>
          organizationTable(await operator.organizations()),
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
      command:
        () =>
        ({ clusters }) =>
          clusters.list(),
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
    'org move',
    {
      words: 1,
      options: ['to', 'to-node', 'placement', 'pause', 'force', 'replicate', 'finish', 'abort'],
      command: ([id = ''], options) => move(id, options),
    },
  ],
  ['key issue', { words: 1, command: ([id = '']) => issueKey(id) }],
  [
    'citus setup',
    {
      words: 0,
      options: ['workers', 'cluster'],
      command: (_words, { workers = '', cluster }) => setUpCitus(addressesOf(workers), cluster),
    },
  ],
  ['citus disable', { words: 1, options: ['cluster'], command: ([worker = ''], { cluster }) => disableWorker(addressOf(worker), cluster) }],
  [
    'invite',
    {
      words: 0,
      options: ['email', 'expires'],
      command: (_words, { email, expires }) => invite(email === undefined ? undefined : emailOf(email), lifetimeMsOf(expires ?? '7d')),
    },
  ],
]);

/** @throws UsageError */
export function parseCommand(args: readonly string[]): Command {
  const { values, positionals } = parse(args);
  const [noun = '', verb = ''] = positionals;
  const name = FORMS.has(noun) ? noun : `${noun} ${verb}`;
  const form = FORMS.get(name);
  const words = positionals.slice(name.split(' ').length);
  const options = form?.options ?? [];
  if (form?.words !== words.length || Object.keys(values).some((option) => !options.includes(option as keyof Options))) {
    throw new UsageError(USAGE);
  }
  return form.command(words, values);
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
        'to-node': { type: 'string' },
        pause: { type: 'string' },
        replicate: { type: 'boolean' },
        finish: { type: 'boolean' },
        abort: { type: 'boolean' },
      },
      allowPositionals: true,
    });
  } catch (cause) {
    throw new UsageError(USAGE, { cause });
  }
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
    return `${statusOf(organization)}; its key, shown only now:\n\nexport ORG=${organization.id} API_KEY=${apiKey}`;
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
    const { organization, apiKey, expiresAt } = await clones.create(wanted, origin);
    return `${statusOf(organization)} until ${expiresAt.toISOString()}; its key, shown only now:\n\nexport ORG=${organization.id} API_KEY=${apiKey}`;
  };
}

function move(id: string, { 'to-node': node, ...options }: Options): Command {
  if (node !== undefined && Object.keys(options).length === 0) {
    const target = addressOf(node);
    return async ({ operator, citus, origin }) => citus.move(await operator.organization(id), target, origin);
  }
  const command = node === undefined ? parseMoveCommand(options) : undefined;
  if (command === undefined) throw new UsageError(USAGE);
  return ({ mover, origin }) => runMoveCommand(mover, id, command, origin);
}

function issueKey(id: string): Command {
  return async ({ operator, origin }) => `the new key of ${id}, shown only now: ${await operator.issueKey(id, origin)}`;
}

function invite(email: string | undefined, lifetimeMs: number): Command {
  return async ({ operator }) => {
    const expiresAt = new Date(Date.now() + lifetimeMs);
    const token = await operator.invite({ email, expiresAt });
    return `an invitation for ${email ?? 'anybody'} until ${expiresAt.toISOString()}, shown only now: ${token}`;
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
function changed({ organization, running }: Changed, rest: string): string {
  const status = statusOf(organization);
  return running === undefined ? status : `${status}; still running: ${running}; ${rest}`;
}
