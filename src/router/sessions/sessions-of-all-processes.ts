import { setTimeout as delay } from 'node:timers/promises';
import type { ProcessRequests } from '../../catalog/processes.ts';
import { ServiceError } from '../../errors.ts';
import type { Tenant } from '../tenant.ts';
import type { SessionSource } from './listed-session.ts';
import {
  LocalSessions,
  SESSIONS_MAX,
  type SessionList,
  type SessionRecord,
  type SessionSignal,
  type SessionsOf,
} from './local-sessions.ts';

/** The sessions that a key may see, of all processes. */
export interface ListedSessions extends SessionList {
  /** How many processes serve the organization, and how many have answered in time. */
  readonly processes: { readonly asked: number; readonly answered: number };
}

/** A request of another process. */
type SessionRequest =
  | { readonly name: 'list'; readonly organizationId: string }
  | ({ readonly name: 'signal'; readonly number: number; readonly signal: SessionSignal } & SessionsOf);

/** The lists of the other processes. */
interface OthersLists {
  readonly asked: number;
  readonly lists: readonly SessionList[];
}

const LIST_TIMEOUT_MS = 1_000;
const SIGNAL_TIMEOUT_MS = 3_000;
/** For an organization other processes are asked for their lists at most this often. Callers in between share the answer. */
const LIST_EVERY_MS = 250;
/** An organization's signals to sessions of other processes are sent one after another, at least this far apart. */
const SIGNAL_EVERY_MS = 20;
const SESSION_ID = /^ses_([0-9a-f]{8})([0-9a-f]{8})$/;

/** The sessions of organizations in all processes: lists them, cancels their statements, ends them. */
export class Sessions {
  readonly #local: LocalSessions;
  readonly #processes: ProcessRequests;
  /** The latest requests for lists, by organization. */
  readonly #lists = new Map<string, Promise<OthersLists>>();
  /** When the last signal of an organization has been sent. */
  readonly #signals = new Map<string, Promise<unknown>>();

  constructor(processes: ProcessRequests) {
    this.#processes = processes;
    this.#local = new LocalSessions((number) => this.idOf(number));
  }

  /** Lets other processes ask for the sessions of this one. */
  async open(): Promise<void> {
    await this.#processes.serve((request) => this.#respond(JSON.parse(request)));
  }

  /** Adds a door of this process. */
  register(source: SessionSource): void {
    this.#local.register(source);
  }

  /** The id of a session of this process. It is no secret: whose session it is counts. */
  idOf(number: number): string {
    return `ses_${hexadecimal(this.#processes.own)}${hexadecimal(number)}`;
  }

  /**
   * The sessions of the tenant's organization, or of its key if that is no `admin` key. The earliest come first.
   * @throws ServiceError `not_ready`
   */
  async list(tenant: Tenant): Promise<ListedSessions> {
    const whose = seenBy(tenant);
    const [own, others] = await Promise.all([this.#local.list(whose), this.#askForLists(whose.organizationId)]);
    const lists = [own, ...others.lists];
    const sessions = lists.flatMap(({ sessions }) => sessions.filter(({ keyId }) => keyId === (whose.keyId ?? keyId))).sort(byAge);
    const processes = { asked: 1 + others.asked, answered: lists.length };
    const isAll = sessions.length <= SESSIONS_MAX && processes.answered === processes.asked;
    return { sessions: sessions.slice(0, SESSIONS_MAX), isComplete: isAll && lists.every(({ isComplete }) => isComplete), processes };
  }

  /**
   * Cancels what a session runs, or ends it.
   * @throws ServiceError `not_found` where there is no such session, or the tenant's key must not see it; `not_ready`
   */
  async signal(tenant: Tenant, sessionId: string, signal: SessionSignal): Promise<void> {
    const [, process = '', number = ''] = SESSION_ID.exec(sessionId) ?? [];
    const isFound =
      isProcess(Number.parseInt(process, 16)) &&
      (await this.#send(Number.parseInt(process, 16), Number.parseInt(number, 16), seenBy(tenant), signal));
    if (!isFound) throw new ServiceError('not_found', `there is no session "${sessionId}"`);
  }

  #send(to: number, number: number, whose: SessionsOf, signal: SessionSignal): boolean | Promise<boolean> {
    if (to === this.#processes.own) return this.#local.signal(whose, number, signal);
    return this.#inTurn(whose.organizationId, async () => {
      const request: SessionRequest = { name: 'signal', number, signal, ...whose };
      const { asked, replies } = await this.#processes.ask({ to, request: JSON.stringify(request), timeoutMs: SIGNAL_TIMEOUT_MS });
      const [reply] = replies;
      if (asked > 0 && reply === undefined)
        throw new ServiceError('not_ready', 'the process that has this session does not answer', { retryAfterS: 1 });
      return reply === 'true';
    });
  }

  /** Runs after the organization's earlier work. */
  #inTurn<T>(organizationId: string, work: () => Promise<T>): Promise<T> {
    const turn = (this.#signals.get(organizationId) ?? Promise.resolve()).then(work);
    const next = turn.catch(() => {}).then(() => delay(SIGNAL_EVERY_MS));
    this.#signals.set(organizationId, next);
    void next.then(() => {
      if (this.#signals.get(organizationId) === next) this.#signals.delete(organizationId);
    });
    return turn;
  }

  #askForLists(organizationId: string): Promise<OthersLists> {
    const latest = this.#lists.get(organizationId);
    if (latest !== undefined) return latest;
    const asking = this.#askOthers({ name: 'list', organizationId });
    this.#lists.set(organizationId, asking);
    void Promise.allSettled([asking, delay(LIST_EVERY_MS)]).then(() => this.#lists.delete(organizationId));
    return asking;
  }

  async #askOthers(request: SessionRequest): Promise<OthersLists> {
    const { asked, replies } = await this.#processes.ask({ request: JSON.stringify(request), timeoutMs: LIST_TIMEOUT_MS });
    return { asked, lists: replies.map((reply): SessionList => JSON.parse(reply)) };
  }

  async #respond(request: SessionRequest): Promise<string> {
    if (request.name === 'list') return JSON.stringify(await this.#local.list({ organizationId: request.organizationId }));
    return String(this.#local.signal(request, request.number, request.signal));
  }
}

/** Zero stands for all processes, and no process has a number that the control database has no room for. */
function isProcess(number: number): boolean {
  return number > 0 && number <= 0x7fff_ffff;
}

/** An `admin` key sees the sessions of all keys, any other its own. */
function seenBy({ organization, key }: Tenant): SessionsOf {
  return key.scope === 'admin' ? { organizationId: organization.id } : { organizationId: organization.id, keyId: key.id };
}

function byAge(a: SessionRecord, b: SessionRecord): number {
  return a.connectedAt < b.connectedAt ? -1 : Number(a.connectedAt > b.connectedAt);
}

function hexadecimal(number: number): string {
  return number.toString(16).padStart(8, '0');
}
