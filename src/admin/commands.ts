import { parseArgs } from 'node:util';
import type { Organization } from '../catalog/organization.ts';
import { ServiceError } from '../errors.ts';
import type { Address } from '../placement/citus.ts';
import type { Changed } from '../router/operator.ts';
import { addressesOf, addressOf, emailOf, lifetimeMsOf, nameOf } from './arguments.ts';
import { type ClusterOptions, clusterToAdd } from './cluster-arguments.ts';
import type { AddedCluster } from './clusters.ts';
import { type MoveCommandOptions, parseMoveCommand, runMoveCommand } from './move-command.ts';
import type { OperatorSession } from './open-operator.ts';
import { organizationTable, printable } from './terminal-output.ts';
import { USAGE, usageOf } from './usage.ts';
import { UsageError } from './usage-error.ts';

/** Asks the person at the terminal. @returns the answer; undefined: there is no terminal */
export type Ask = (question: string) => Promise<string | undefined>;

/** @returns what to print */
export type Command = (session: OperatorSession, ask: Ask) => Promise<string>;

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
  if (args.length === 0) throw new UsageError('', USAGE);
  const { values, positionals } = parse(args);
  const [noun = '', verb = ''] = positionals;
  const name = FORMS.has(noun) ? noun : `${noun} ${verb}`.trim();
  const form = FORMS.get(name);
  if (form === undefined) throw new UsageError(`there is no command ${printable(name)}`, usageOf(noun));
  const words = positionals.slice(name.split(' ').length);
  if (form.words !== words.length) throw new UsageError('', usageOf(name));
  const options = form.options ?? [];
  const other = Object.keys(values).find((option) => !options.includes(option as keyof Options));
  if (other !== undefined) throw new UsageError(`${name} has no option --${other}`, usageOf(name));
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
    const [reason = ''] = (cause instanceof Error ? cause.message : '').split('. ');
    const words = args.slice(0, 2).filter((word) => !word.startsWith('-'));
    throw new UsageError(printable(reason), usageOf(words.join(' ')), { cause });
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
  if (command === undefined) throw new UsageError('', usageOf('org move'));
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
