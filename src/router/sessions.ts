import { setTimeout as delay } from 'node:timers/promises';
import type { Endpoints } from '../backend/connection.ts';
import type { LockWait } from '../catalog/control-pool.ts';
import type { Organization, Placement } from '../catalog/organization.ts';
import type { ProcessRequests } from '../catalog/processes.ts';
import { ServiceError } from '../errors.ts';
import type { ShownSession } from '../placement/hardening.ts';
import { rolesOf } from '../placement/restricted-roles.ts';
import { TimeSlices } from '../runtime/event-loop.ts';
import { redactSecrets } from '../syntax/redaction.ts';
import type { Tenant } from './lease.ts';

/** The sessions that a key may see, of all processes. */
interface ListedSessions {
  readonly sessions: readonly SeenSession[];
  /** False where there are more than may be listed. */
  readonly isComplete: boolean;
  /** False where the server has not said in time which sessions wait for locks. */
  readonly areWaitsKnown: boolean;
  /** How many processes serve the organization, and how many have answered in time. */
  readonly processes: { readonly asked: number; readonly answered: number };
}

/** A request of another process. */
type SessionRequest =
  | { readonly name: 'operator'; readonly request: unknown }
  | { readonly name: 'list'; readonly organizationId: string }
  | { readonly name: 'shown'; readonly pool: string }
  | ({ readonly name: 'signal'; readonly number: number; readonly signal: SessionSignal } & SessionsOf);

/** The lists of the other processes. */
interface OthersLists {
  readonly asked: number;
  readonly lists: readonly SessionList[];
}

/** What a session waits for. */
interface WaitsFor {
  /** The kind of what is locked, as `locktype` of pg_locks. */
  readonly lock: string;
  /** `AccessExclusiveLock` and the like. */
  readonly mode: string;
  /** The OID of the table or index, of whose row it may be; null: it is something else. */
  readonly relation: number | null;
  /** An ISO string; null in the first moment. */
  readonly since: string | null;
  /** Something has the lock that is no session of the organization, such as autovacuum or a prepared transaction. */
  readonly isHeldElsewhere: boolean;
}

/** A session of any process, and whom it waits for. */
interface SeenSession extends SessionRecord {
  /** Null: it waits for no lock, or that is not known. */
  readonly waitsFor: WaitsFor | null;
  /** The ids of the sessions that it waits for, then of those that these wait for, and so on. The last one waits for none. */
  readonly blockedBy: readonly string[];
}

/** Of an organization. */
interface Waits {
  readonly areKnown: boolean;
  /** By session id. */
  readonly bySession: ReadonlyMap<string, DirectWait & { readonly blockedBy: readonly string[] }>;
}

const WAITS_FOR_NONE = { waitsFor: null, blockedBy: [] } as const;
const NO_WAITS: Waits = { areKnown: true, bySession: new Map() };
const HOLDERS_TOLD_MAX = 5;
/** Sessions of an organization that run something are asked for, those that have done so for longest. */
const ASKED_MAX = 100;

const LIST_TIMEOUT_MS = 1_000;
const SIGNAL_TIMEOUT_MS = 3_000;
const OPERATOR_TIMEOUT_MS = 5_000;
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
  readonly #lockWaits: AskLockWaits | undefined;
  /** Answers what an operator asks of this process. */
  #operatorRequests: (request: unknown) => Promise<string> = async () => '';

  /** @param lockWaits undefined for a process without sessions of its own, which lists none */
  constructor(processes: ProcessRequests, lockWaits?: AskLockWaits) {
    this.#processes = processes;
    this.#lockWaits = lockWaits;
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

  /** All sessions of this process, each with the name of its pool. */
  all(): Iterable<readonly [pool: string, session: ListedSession]> {
    return this.#local.all();
  }

  /**
   * Says for how long which sessions of this process have these backends, those that have been so for longest first.
   * @returns one sentence; undefined if none has
   */
  describeHolders(organizationId: string, backends: ReadonlySet<number>): string | undefined {
    const holders = this.#local.holders({ organizationId }, backends);
    const now = performance.now();
    const told = holders.slice(0, HOLDERS_TOLD_MAX).map(({ sessionId, door, state, stateSince }) => {
      return `${sessionId} (${door}, ${state} for ${Math.max(0, Math.round((now - stateSince) / 1_000))} s)`;
    });
    const others = backends.size - told.length;
    if (told.length === 0) return undefined;
    return `Backends are held by ${told.join(', ')}${others > 0 ? ` and ${others} more` : ''}.`;
  }

  /** @param answer answers what an operator asks of this process by {@link askAll}, here or at another */
  serveOperators(answer: (request: unknown) => Promise<string>): void {
    this.#operatorRequests = answer;
  }

  /**
   * Has every process of the service do what an operator asks.
   * @returns what each has answered, this one first; the others that have not answered in time are only counted
   * @throws ServiceError `not_ready`
   */
  async askAll(request: unknown): Promise<{ readonly replies: readonly string[]; readonly missing: number }> {
    const question: SessionRequest = { name: 'operator', request };
    const [own, { asked, replies }] = await Promise.all([
      this.#operatorRequests(request),
      this.#processes.ask({ request: JSON.stringify(question), timeoutMs: OPERATOR_TIMEOUT_MS }),
    ]);
    return { replies: [own, ...replies], missing: asked - replies.length };
  }

  /** The id of a session of this process. It is no secret: whose session it is counts. */
  idOf(number: number): string {
    return `ses_${hexadecimal(this.#processes.own)}${hexadecimal(number)}`;
  }

  /**
   * The sessions of the tenant's organization, or of its key if that is no `admin` key, and whom they wait for. The earliest come first.
   * @throws ServiceError `not_ready`
   */
  async list(tenant: Tenant): Promise<ListedSessions> {
    const { keyId } = seenBy(tenant);
    const { sessions, isComplete, processes } = await this.#listAll(tenant.organization.id, keyId);
    const waits = await this.#waitsOf(tenant.organization, sessions);
    const seen = sessions.filter((session) => session.keyId === (keyId ?? session.keyId)).sort(byAge);
    return {
      sessions: seen.slice(0, SESSIONS_MAX).map(({ backend: _backend, ...session }) => {
        const { waitsFor, blockedBy } = waits.bySession.get(session.sessionId) ?? WAITS_FOR_NONE;
        return { ...session, waitsFor, blockedBy };
      }),
      isComplete: isComplete && seen.length <= SESSIONS_MAX,
      areWaitsKnown: waits.areKnown,
      processes,
    };
  }

  /**
   * By whom sessions of the organization are blocked, as `pg_blocking_pids()` tells it.
   * @returns the process ids of those that block it by that of the one that waits, as `pg_backend_pid()` gives them; 0 for what has none,
   * such as a request over HTTP. Also by the process id of its backend, and those of theirs
   * @throws ServiceError `not_ready`
   */
  async blockers(organization: Organization): Promise<ReadonlyMap<number, readonly number[]>> {
    const { sessions } = await this.#listAll(organization.id, undefined);
    const { areKnown, bySession } = await this.#waitsOf(organization, sessions);
    if (!areKnown) throw new ServiceError('not_ready', 'the database has not said in time which sessions wait', { retryAfterS: 1 });
    const numbers = new Map(sessions.map(({ sessionId, processId }) => [sessionId, processId ?? 0]));
    const blockers = new Map<number, readonly number[]>();
    for (const { sessionId, processId, backend } of sessions) {
      const wait = bySession.get(sessionId);
      if (wait === undefined) continue;
      const direct = wait.direct.map((id) => numbers.get(id) ?? 0);
      if (processId !== null) blockers.set(processId, wait.waitsFor.isHeldElsewhere ? [...direct, 0] : direct);
      if (backend !== undefined) blockers.set(backend, wait.backends);
    }
    return blockers;
  }

  /** The sessions of all processes. @param keyId whose are among them, where there are more than may be listed; undefined: anybody's */
  async #listAll(organizationId: string, keyId: string | undefined) {
    const [all, ofKey, others] = await Promise.all([
      this.#local.list({ organizationId }),
      keyId === undefined ? undefined : this.#local.list({ organizationId, keyId }),
      this.#askForLists(organizationId),
    ]);
    const lists = [ofKey ?? all, ...others.lists];
    const processes = { asked: 1 + others.asked, answered: lists.length };
    const isComplete = processes.answered === processes.asked && lists.every(({ isComplete }) => isComplete);
    const byId = new Map([all, ...lists].flatMap(({ sessions }) => sessions.map((session) => [session.sessionId, session])));
    return { sessions: [...byId.values()], isComplete, processes };
  }

  async #waitsOf({ placement }: Organization, sessions: readonly LocalRecord[]): Promise<Waits> {
    const byBackend = new Map<number, LocalRecord[]>();
    for (const session of sessions) {
      if (!session.backend) continue;
      const those = byBackend.get(session.backend);
      if (those === undefined) byBackend.set(session.backend, [session]);
      else those.push(session);
    }
    const running = sessions.filter(({ state, backend }) => state === 'active' && backend);
    running.sort((a, b) => (a.stateSince < b.stateSince ? -1 : 1));
    const asked = [...new Set(running.slice(0, ASKED_MAX).map(({ backend }) => backend as number))];
    if (asked.length === 0 || this.#lockWaits === undefined) return NO_WAITS;
    const late = delay(LIST_TIMEOUT_MS, undefined, { ref: false });
    const waits = await Promise.race([this.#lockWaits(placement, asked), late]).catch(() => undefined);
    return waits === undefined
      ? { ...NO_WAITS, areKnown: false }
      : { areKnown: true, bySession: waitsBySession(placement, waits, byBackend) };
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

  /** The sessions of a pool in the other processes, as views of activity show them; of those processes that answer in time. */
  async shownElsewhere(pool: string): Promise<readonly ShownSession[]> {
    const request: SessionRequest = { name: 'shown', pool };
    const { replies } = await this.#processes.ask({ request: JSON.stringify(request), timeoutMs: LIST_TIMEOUT_MS });
    // One of an earlier version may say something else.
    return replies.map((reply): unknown => JSON.parse(reply)).flatMap((reply) => (Array.isArray(reply) ? reply : []));
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
    if (request.name === 'operator') return this.#operatorRequests(request.request);
    if (request.name === 'list') return JSON.stringify(await this.#local.list({ organizationId: request.organizationId }));
    if (request.name === 'shown') return JSON.stringify(this.#local.shown(request.pool));
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

/** @param byBackend the organization's sessions. Nothing is shown of processes that have none of these, or another role by now */
function waitsBySession(placement: Placement, waits: readonly LockWait[], byBackend: ReadonlyMap<number, readonly LocalRecord[]>) {
  const roles = rolesOf(placement.role);
  const direct = new Map<string, DirectWait>();
  for (const { processId, role, blockedBy, lock, mode, relation, since } of waits) {
    if (!roles.includes(role)) continue;
    for (const { sessionId } of byBackend.get(processId) ?? []) {
      const by = blockedBy.flatMap((blocker) => (byBackend.get(blocker) ?? []).map((session) => session.sessionId));
      const isHeldElsewhere = blockedBy.some((blocker) => !byBackend.has(blocker));
      const waitsFor = { lock, mode, relation, since: since === null ? null : new Date(since).toISOString(), isHeldElsewhere };
      const backends = blockedBy.map((blocker) => (byBackend.has(blocker) ? blocker : 0));
      direct.set(sessionId, { waitsFor, direct: [...new Set(by)].filter((id) => id !== sessionId), backends });
    }
  }
  return new Map([...direct].map(([sessionId, wait]) => [sessionId, { ...wait, blockedBy: chainOf(sessionId, direct) }]));
}

/** The nearest first. */
function chainOf(sessionId: string, direct: ReadonlyMap<string, DirectWait>): readonly string[] {
  const chain = new Set<string>(direct.get(sessionId)?.direct);
  for (const blocker of chain) for (const next of direct.get(blocker)?.direct ?? []) if (next !== sessionId) chain.add(next);
  return [...chain];
}

/** A session as it is listed. Times are ISO strings. */
interface SessionRecord {
  readonly sessionId: string;
  readonly door: 'wire' | 'http';
  readonly keyId: string;
  readonly keyPrefix: string;
  readonly sourceIp: string;
  readonly applicationName: string | null;
  readonly userAgent: string | null;
  readonly isEncrypted: boolean;
  readonly processId: number | null;
  readonly connectedAt: string;
  readonly state: SessionState;
  readonly stateSince: string;
  readonly pins: readonly PinnedFor[];
  readonly statement: { readonly sql: string; readonly startedAt: string; readonly runningMs: number } | null;
}

/** A session, as processes tell each other. */
interface LocalRecord extends SessionRecord {
  /** The process id of the backend that it has; 0: none, or it is not known. Missing from processes of an earlier version. */
  readonly backend?: number;
}

/** What a session waits for, and for which sessions. */
interface DirectWait {
  readonly waitsFor: WaitsFor;
  readonly direct: readonly string[];
  /** The backends of these, as `pg_blocking_pids()` of the server has them; 0: of something else. */
  readonly backends: readonly number[];
}

/** Which of these backends of one organization wait for locks. */
type AskLockWaits = (placement: Placement, processIds: readonly number[]) => Promise<readonly LockWait[]>;

interface SessionList {
  readonly sessions: readonly LocalRecord[];
  /** False where there are more than may be listed. */
  readonly isComplete: boolean;
}

/** Which sessions are meant: those of an organization, or of one of its keys. */
interface SessionsOf {
  readonly organizationId: string;
  readonly keyId?: string | undefined;
}

/** What can be done to a session. */
export type SessionSignal = 'cancel' | 'terminate';

const SESSIONS_MAX = 1_000;
/** Few statements run at the same time. Of more than these, none is shown. */
const READ_CHARACTERS_MAX = 262_144;
const TEXT_CHARACTERS_MAX = 500;

/** The sessions of organizations at both doors of this process. Nothing is noted of a session before it is asked for. */
export class LocalSessions {
  readonly #sources: SessionSource[] = [];
  readonly #idOf: (number: number) => string;

  /** @param idOf names a session of this process among those of all */
  constructor(idOf: (number: number) => string) {
    this.#idOf = idOf;
  }

  /** Adds a door. */
  register(source: SessionSource): void {
    this.#sources.push(source);
  }

  *all(): Iterable<readonly [pool: string, session: ListedSession]> {
    for (const source of this.#sources) yield* source.all();
  }

  /** Takes several turns of the event loop where many statements have to be shown. */
  async list(whose: SessionsOf): Promise<SessionList> {
    const found: ListedSession[] = [];
    for (const session of this.#sessionsOf(whose)) if (found.push(session) > SESSIONS_MAX) break;
    const sessions: LocalRecord[] = [];
    const slices = new TimeSlices();
    let readCharacters = 0;
    for (const session of found.slice(0, SESSIONS_MAX)) {
      const described = session.describe();
      if (described === undefined) continue;
      readCharacters += Math.min(described.statement?.text.length ?? 0, WHOLE_CHARACTERS_MAX);
      const statement = readCharacters > READ_CHARACTERS_MAX ? undefined : described.statement;
      const record = recordOf(this.#idOf(session.number), session.keyId, { ...described, statement });
      sessions.push({ ...record, backend: session.backendProcessId ?? 0 });
      await slices.pause();
    }
    return { sessions, isComplete: found.length <= SESSIONS_MAX };
  }

  shown(pool: string): readonly ShownSession[] {
    return this.#sources.flatMap((source) => source.shownOf?.(pool) ?? []);
  }

  /** Those that have one of these backends, one for each. Those that have been in their state for longest come first. */
  holders(whose: SessionsOf, backends: ReadonlySet<number>): readonly (SessionDescription & { readonly sessionId: string })[] {
    const byBackend = new Map<number, SessionDescription & { readonly sessionId: string }>();
    for (const session of this.#sessionsOf(whose)) {
      const { backendProcessId = 0 } = session;
      if (!backends.has(backendProcessId)) continue;
      const described = session.describe();
      if (described !== undefined) byBackend.set(backendProcessId, { ...described, sessionId: this.#idOf(session.number) });
    }
    return [...byBackend.values()].sort((a, b) => a.stateSince - b.stateSince);
  }

  /** @returns whether there is such a session */
  signal(whose: SessionsOf, number: number, signal: SessionSignal): boolean {
    for (const session of this.#sessionsOf(whose)) {
      if (session.number !== number) continue;
      if (signal === 'terminate') session.terminate();
      else void session.cancel();
      return true;
    }
    return false;
  }

  *#sessionsOf({ organizationId, keyId }: SessionsOf): Iterable<ListedSession> {
    for (const source of this.#sources) {
      for (const session of source.sessionsOf(organizationId)) if (keyId === undefined || session.keyId === keyId) yield session;
    }
  }
}

function recordOf(sessionId: string, keyId: string, described: SessionDescription): SessionRecord {
  const { statement } = described;
  const now = performance.now();
  const timeOf = (at: number) => new Date(Date.now() - (now - at)).toISOString();
  return {
    sessionId,
    door: described.door,
    keyId,
    keyPrefix: described.keyPrefix,
    sourceIp: described.sourceIp,
    applicationName: cut(described.applicationName),
    userAgent: cut(described.userAgent),
    isEncrypted: described.isEncrypted,
    processId: described.processId ?? null,
    connectedAt: timeOf(described.connectedAt),
    state: described.state,
    stateSince: timeOf(described.stateSince),
    pins: described.pins,
    statement:
      statement === undefined
        ? null
        : { sql: shownSql(statement), startedAt: timeOf(statement.since), runningMs: Math.max(0, Math.round(now - statement.since)) },
  };
}

function cut(text: string | undefined): string | null {
  return text === undefined || text === '' ? null : text.slice(0, TEXT_CHARACTERS_MAX);
}

/** The state of a client's session, in the words of pg_stat_activity; or it waits for a backend, in which case it runs nothing yet. */
export const SESSION_STATES = ['idle', 'active', 'idle in transaction', 'idle in failed transaction', 'waiting for a backend'] as const;

export type SessionState = (typeof SESSION_STATES)[number];

/** Why a session keeps its backend. */
export interface PinnedFor {
  readonly reason: string;
  /** One sentence. */
  readonly explanation: string;
}

/** SQL as its client has sent it, which may hold secrets. */
export interface SentStatement {
  readonly text: string;
  /** The text is complete, and not only its beginning. */
  readonly isWhole: boolean;
  /** When it was sent to the backend. */
  readonly since: number;
}

/** A client's session at a door, at this moment. Its times are on performance.now()'s clock. */
export interface SessionDescription {
  readonly door: 'wire' | 'http';
  readonly keyPrefix: string;
  readonly sourceIp: string;
  readonly applicationName: string | undefined;
  readonly userAgent: string | undefined;
  readonly isEncrypted: boolean;
  /** What `pg_backend_pid()` returns to the client; undefined where it depends on the statement. */
  readonly processId: number | undefined;
  readonly connectedAt: number;
  readonly state: SessionState;
  readonly stateSince: number;
  readonly pins: readonly PinnedFor[];
  /** Undefined if none is running, or it is not known which. */
  readonly statement: SentStatement | undefined;
  /** For operators: where the connection begins and ends. */
  readonly endpoints?: Endpoints | undefined;
  /** For operators: the TLS version and cipher. */
  readonly cipher?: string | undefined;
}

/** A client's session: a connection to the wire door, or a request over HTTP. */
export interface ListedSession {
  /** Below 2^32, and that of no other session of this process. */
  readonly number: number;
  readonly keyId: string;
  /** The backend that it has at the moment; 0: none; undefined: it is not known which. */
  readonly backendProcessId?: number;
  /** @returns undefined if the session has ended */
  describe(): SessionDescription | undefined;
  /** Cancels the running statement, if there is one. */
  cancel(): unknown;
  /** Ends the session with 57P01. */
  terminate(): void;
}

/** A door, as the list of sessions uses it. */
export interface SessionSource {
  /** Those of all the organization's keys. */
  sessionsOf(organizationId: string): Iterable<ListedSession>;
  /** Those of all organizations, each with the name of its pool. */
  all(): Iterable<readonly [pool: string, session: ListedSession]>;
  /** Those of a pool, as views of activity show them. Undefined: they show backends only. */
  shownOf?(pool: string): readonly ShownSession[];
}

const SHOWN_CHARACTERS_MAX = 1_000;
/** Longer texts are not searched for secrets as a whole. */
const WHOLE_CHARACTERS_MAX = 8_192;
/** Masking makes a text shorter. */
const BEGINNING_CHARACTERS = 2_048;

/** The first half of a surrogate pair that has been cut. */
const HALF_CHARACTER = /[\ud800-\udbff]$/;

/**
 * The beginning of a statement, with secrets masked as in the audit log. Whether a literal is a password may depend on any part of
 * the text. So all literals of a long text are masked.
 */
function shownSql({ text, isWhole }: Pick<SentStatement, 'text' | 'isWhole'>): string {
  const isShort = isWhole && text.length <= WHOLE_CHARACTERS_MAX;
  const redacted = isShort ? redactSecrets(text) : redactSecrets(text.slice(0, BEGINNING_CHARACTERS), true);
  return redacted.trimStart().slice(0, SHOWN_CHARACTERS_MAX).replace(HALF_CHARACTER, '');
}
