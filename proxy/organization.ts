import { poolsOf } from '../src/backend/organization-pool.ts';
import type { ShownSession } from '../src/placement/hardening.ts';
import type { Tenant } from '../src/router/lease.ts';
import type { ListedSession, SessionSource } from '../src/router/sessions.ts';
import { BoundedMap } from '../src/runtime/bounded-map.ts';
import { MemoryBudget, MemoryReservation } from '../src/runtime/memory-budget.ts';
import { FirstOptions } from './begun-transaction.ts';
import { ParseCache, STATEMENT_BOUNDS, StatementMemory } from './client-statements.ts';
import { SequenceUse } from './pins.ts';
import type { ProcessIds, SessionAddresses } from './process-ids.ts';
import type { SessionStart } from './session-start.ts';

/** More are not listed. */
const MAX_SHOWN = 1_000;
const MAX_REMEMBERED_LOGINS = 100;
const MAX_REMEMBERED_ROLES = 1_000;
const MAX_REMEMBERED_BACKENDS = 10_000;

/** A session, as the organization's other sessions use it. */
export interface ReachableSession extends ListedSession {
  /** 0: idle. */
  readonly backendProcessId: number;
  readonly addresses: SessionAddresses;
  /** Whether views of activity can be told of sessions. */
  readonly isShown: boolean;
  /** How the views of activity show it; undefined: it has ended. */
  shown(): ShownSession | undefined;
  cancel(): Promise<void>;
}

/** What the wire sessions of one role of an organization share in this process. */
export class OrganizationSessions {
  count = 0;
  parseCache = new ParseCache();
  readonly statementMemory: StatementMemory;
  readonly sequences = new SequenceUse();
  readonly firstOptions = new FirstOptions();
  /** The starts of sessions, by their settings. */
  readonly starts = new BoundedMap<string, SessionStart>({ maxEntries: MAX_REMEMBERED_LOGINS });
  /** The ParameterStatus values after a login, by the settings of the login. */
  readonly parameters = new BoundedMap<string, ReadonlyMap<string, string>>({ maxEntries: MAX_REMEMBERED_LOGINS });

  /** Of the logins that are remembered. */
  #defaultsVersion = 0;
  readonly #sessions = new Map<number, OwnProcessId>();
  /** Those of other processes, when these were asked last. */
  #elsewhere: readonly ShownSession[] = [];
  #asking: Promise<void> | undefined;
  #askingNext: Promise<void> | undefined;
  /** The session that used a backend last, by the backend's process id. */
  readonly #users = new BoundedMap<number, number>({ maxEntries: MAX_REMEMBERED_BACKENDS });

  /** @param statements where its clients' statements count */
  constructor(statements: MemoryReservation) {
    this.statementMemory = new StatementMemory(statements);
  }

  /** Registers a session by its process id. @returns the translation between process ids of sessions and backends */
  join(processId: number, session: ReachableSession): ProcessIds {
    const processIds = new OwnProcessId(processId, session, this, this.#sessions, this.#users);
    this.#sessions.set(processId, processIds);
    return processIds;
  }

  part(processId: number): void {
    const processIds = this.#sessions.get(processId);
    if (processIds !== undefined) processIds.session = undefined;
    this.#sessions.delete(processId);
  }

  /** The sessions of this process, as views of activity show them. */
  shown(): ShownSession[] {
    const sessions: ShownSession[] = [];
    for (const session of this.all()) {
      const shown = session.shown();
      if (shown !== undefined && sessions.push(shown) === MAX_SHOWN) break;
    }
    return sessions;
  }

  /** Those of all processes. */
  shownAnywhere(): ShownSession[] {
    return [...this.shown(), ...this.#elsewhere].slice(0, MAX_SHOWN);
  }

  /**
   * Asks the other processes for theirs. One question is asked at a time: those who come meanwhile share the next, because the present one
   * may have been answered before they came.
   */
  lookElsewhere(ask: () => Promise<readonly ShownSession[]>): Promise<void> {
    if (this.#asking === undefined) return this.#ask(ask);
    this.#askingNext ??= this.#asking.then(() => {
      this.#askingNext = undefined;
      return this.#ask(ask);
    });
    return this.#askingNext;
  }

  #ask(ask: () => Promise<readonly ShownSession[]>): Promise<void> {
    this.#asking = ask()
      .catch(() => [])
      .then((sessions) => {
        this.#elsewhere = sessions;
        this.#asking = undefined;
      });
    return this.#asking;
  }

  *all(): Iterable<ReachableSession> {
    for (const { session } of this.#sessions.values()) if (session !== undefined) yield session;
  }

  /** Forgets earlier logins if the defaults for new sessions may have changed since, at either door. */
  checkDefaults(version: number): void {
    if (version === this.#defaultsVersion) return;
    this.#defaultsVersion = version;
    this.starts.clear();
    this.parameters.clear();
  }
}

const UNKNOWN_ADDRESSES: SessionAddresses = {
  inet_client_addr: null,
  inet_client_port: null,
  inet_server_addr: null,
  inet_server_port: null,
};

/** Translates process ids for one session. */
class OwnProcessId implements ProcessIds {
  readonly own: number;
  /** Undefined when the session has ended: old tables of a Map that has grown refer to their entries until a full garbage collection. */
  session: ReachableSession | undefined;
  readonly #organization: OrganizationSessions;
  readonly #sessions: ReadonlyMap<number, OwnProcessId>;
  readonly #users: BoundedMap<number, number>;

  constructor(
    own: number,
    session: ReachableSession,
    organization: OrganizationSessions,
    sessions: ReadonlyMap<number, OwnProcessId>,
    users: BoundedMap<number, number>,
  ) {
    this.#organization = organization;
    this.own = own;
    this.session = session;
    this.#sessions = sessions;
    this.#users = users;
  }

  get addresses(): SessionAddresses {
    return this.session?.addresses ?? UNKNOWN_ADDRESSES;
  }

  get areShown(): boolean {
    return this.session?.isShown === true;
  }

  shown(): string {
    return JSON.stringify(this.#organization.shownAnywhere());
  }

  backendOf(processId: number): number | undefined {
    return this.#sessions.get(processId)?.session?.backendProcessId;
  }

  signal(processId: number, signal: 'cancel' | 'terminate'): Promise<void> | undefined {
    const target = this.#sessions.get(processId)?.session;
    if (signal === 'terminate') {
      target?.terminate();
      return undefined;
    }
    const arrived = target?.cancel();
    // One's own may have to wait for what is sent with it.
    return processId === this.own ? undefined : arrived;
  }

  moved(backend: number): void {
    this.#users.set(backend, this.own);
  }

  userOf(backend: number): number | undefined {
    return this.#users.get(backend);
  }
}

/** The role of an organization to which sessions belong: the owner, or the role of read keys. */
type SessionsOwner = Pick<Tenant, 'pool' | 'limitsId'>;

/** The organizations' roles with wire sessions, and some that had sessions recently. */
export class OrganizationDirectory implements SessionSource {
  readonly #present = new Map<string, OrganizationSessions>();
  readonly #former = new BoundedMap<string, OrganizationSessions>({ maxEntries: MAX_REMEMBERED_ROLES });
  readonly #statements = new MemoryBudget(STATEMENT_BOUNDS);

  /** Adds a session. */
  enter({ pool, limitsId }: SessionsOwner): OrganizationSessions {
    const sessions = this.#present.get(pool) ?? this.#former.get(pool) ?? this.#newSessions(limitsId);
    if (sessions.count === 0) {
      this.#former.delete(pool);
      this.#present.set(pool, sessions);
    }
    sessions.count += 1;
    return sessions;
  }

  *sessionsOf(organizationId: string): Iterable<ListedSession> {
    for (const role of poolsOf(organizationId)) yield* this.#present.get(role)?.all() ?? [];
  }

  shownOf(pool: string): readonly ShownSession[] {
    return this.#present.get(pool)?.shown() ?? [];
  }

  *all(): Iterable<readonly [pool: string, session: ListedSession]> {
    for (const [pool, sessions] of this.#present) for (const session of sessions.all()) yield [pool, session] as const;
  }

  /** Removes a session. When the last one ends, the parse cache is dropped. */
  leave({ pool }: SessionsOwner, sessions: OrganizationSessions): void {
    sessions.count -= 1;
    if (sessions.count > 0) return;
    sessions.parseCache = new ParseCache();
    this.#present.delete(pool);
    this.#former.set(pool, sessions);
  }

  #newSessions(limitsId: string): OrganizationSessions {
    return new OrganizationSessions(new MemoryReservation(this.#statements, limitsId, 0));
  }
}
