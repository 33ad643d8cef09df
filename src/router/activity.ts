import { organizationOfPool } from '../backend/organization-pool.ts';
import { TOTALS, type UsageCounters } from '../catalog/usage.ts';
import type { ChangeableSetting } from '../config.ts';
import { ServiceError } from '../errors.ts';
import { TimeSlices } from '../runtime/event-loop.ts';
import type { ServedCluster } from './served-cluster.ts';
import type { PinnedFor, SessionState, Sessions } from './sessions.ts';

/** What an organization has done: the sums of all processes. Times are in milliseconds. */
export type Totals = Record<(typeof TOTALS)[number], number>;

/** The statistics of an organization. */
export interface OrganizationActivity {
  readonly organizationId: string;
  /** Since the processes started. */
  readonly now: Readonly<Totals>;
  /** In the last one to two minutes, and a second of them. */
  readonly lately: Readonly<Totals>;
  readonly perSecond: Readonly<Totals>;
}

/** The backends of one role of an organization. */
export interface PoolActivity {
  /** As of `OrganizationPool`. */
  readonly pool: string;
  /** Clients that do not wait for a backend. */
  readonly clients: number;
  /** Requests for a backend that wait. */
  readonly waiting: number;
  readonly active: number;
  readonly idle: number;
  readonly opening: number;
  /** Given up; their processes have not ended. */
  readonly leaving: number;
  readonly longestWaitMs: number;
}

interface Addresses {
  readonly address: string;
  readonly port: number;
  readonly localAddress: string;
  readonly localPort: number;
}

/** A client: a session at the wire door, or a request over HTTP. Times are in milliseconds since 1970. */
export interface ClientActivity extends Addresses {
  /** As of {@link Sessions.idOf}. */
  readonly sessionId: string;
  /** Those at the wire door are below 2^31. */
  readonly number: number;
  readonly pool: string;
  readonly door: 'wire' | 'http';
  readonly state: SessionState;
  readonly connectedAt: number;
  /** Since when it has been in this state. */
  readonly since: number;
  readonly waitMs: number;
  /** 0: none, or it is not known. */
  readonly backendProcessId: number;
  readonly cipher: string;
  readonly applicationName: string;
  readonly pins: readonly PinnedFor[];
}

/** A backend session. */
export interface ServerActivity extends Addresses {
  readonly pool: string;
  readonly cluster: string;
  readonly processId: number;
  readonly state: 'active' | 'idle' | 'leaving';
  readonly connectedAt: number;
  /** When it was leased last. */
  readonly usedAt: number;
}

/** What each process tells of itself, in lines. */
interface Reports {
  readonly statistics: readonly [organizationId: string, now: readonly number[], lately: readonly number[], perSecond: readonly number[]];
  readonly pools: PoolActivity;
  readonly clients: ClientActivity;
  readonly servers: ServerActivity;
}

/** What an operator asks of a process. */
type Request =
  | { readonly name: 'report'; readonly of: keyof Reports }
  | { readonly name: 'find'; readonly number: number; readonly sessionId?: string | undefined }
  /** Of an organization, or with this number. */
  | { readonly name: 'end'; readonly organizationId?: string; readonly number?: number; readonly sessionId?: string | undefined }
  /** Undefined: of all organizations. */
  | { readonly name: 'reconnect'; readonly organizationId?: string | undefined }
  | { readonly name: 'reload' }
  | { readonly name: 'set'; readonly setting: ChangeableSetting; readonly value: string };

interface ActivityParts {
  readonly sessions: Sessions;
  /** Those that have answered. */
  readonly clusters: () => readonly ServedCluster[];
  readonly counters: UsageCounters;
  /** Reads files again that may have changed. */
  readonly reload: () => void;
  /** Changes a setting. */
  readonly set: (setting: ChangeableSetting, value: string) => void;
}

/** What the clients of all organizations do, in all processes of the service together, and what operators do to them. */
export class Activity {
  readonly #sessions: Sessions;

  /** Without `parts` of a service of its own, a process may ask those of others, as commands of the operator do. */
  constructor(sessions: Sessions, parts?: Omit<ActivityParts, 'sessions'>) {
    this.#sessions = sessions;
    if (parts === undefined) return;
    const own = new OwnActivity({ sessions, ...parts });
    sessions.serveOperators((request) => own.answer(request as Request));
  }

  /** @throws ServiceError `not_ready` */
  async statistics(): Promise<OrganizationActivity[]> {
    const byOrganization = new Map<string, { now: Totals; lately: Totals; perSecond: Totals }>();
    for (const [id, now, lately, perSecond] of await this.#report('statistics')) {
      const sums = byOrganization.get(id) ?? { now: totalsOf([]), lately: totalsOf([]), perSecond: totalsOf([]) };
      byOrganization.set(id, sums);
      add(sums.now, now);
      add(sums.lately, lately);
      add(sums.perSecond, perSecond);
    }
    return [...byOrganization].map(([organizationId, sums]) => ({ organizationId, ...sums }));
  }

  /** @throws ServiceError `not_ready` */
  async pools(): Promise<PoolActivity[]> {
    const byName = new Map<string, PoolActivity>();
    for (const one of await this.#report('pools')) {
      const known = byName.get(one.pool);
      byName.set(one.pool, known === undefined ? one : together(known, one));
    }
    return [...byName.values()];
  }

  /** The earliest first. @throws ServiceError `not_ready` */
  async clients(): Promise<ClientActivity[]> {
    return (await this.#report('clients')).sort((a, b) => a.connectedAt - b.connectedAt);
  }

  /** @throws ServiceError `not_ready` */
  async servers(): Promise<ServerActivity[]> {
    return (await this.#report('servers')).sort((a, b) => a.connectedAt - b.connectedAt);
  }

  /**
   * Ends one session.
   * @param which its id, or its number where only one has that
   * @returns the id of its organization
   * @throws ServiceError `not_found`; `invalid_request` for a number that several have; `not_ready`
   */
  async end({ number, sessionId }: { readonly number: number; readonly sessionId?: string | undefined }): Promise<string> {
    const which = { number, sessionId };
    const [pool, ...others] = (await this.#ask({ name: 'find', ...which })).flatMap((reply) => (reply === '' ? [] : reply.split('\n')));
    const name = sessionId ?? String(number);
    if (pool === undefined) throw new ServiceError('not_found', `there is no session ${name}`);
    if (others.length > 0) {
      throw new ServiceError('invalid_request', `several sessions have the number ${name}`, {
        hint: 'Give the text of the column ptr: it is the id of one session.',
      });
    }
    await this.#count({ name: 'end', ...which });
    return organizationOfPool(pool);
  }

  /** Ends all sessions of an organization. @returns how many @throws ServiceError `not_ready` */
  endAll(organizationId: string): Promise<number> {
    return this.#count({ name: 'end', organizationId });
  }

  /** Has backends replaced, those in use when they are released. @throws ServiceError `not_ready` */
  async reconnect(organizationId?: string): Promise<void> {
    await this.#count({ name: 'reconnect', organizationId });
  }

  /** @throws ServiceError `not_ready` */
  async reload(): Promise<void> {
    await this.#count({ name: 'reload' });
  }

  /** Changes a setting until the service is started again. @param value one that it may have @throws ServiceError `not_ready` */
  async set(setting: ChangeableSetting, value: string): Promise<void> {
    await this.#count({ name: 'set', setting, value });
  }

  /** How many backends an organization has in use. @throws ServiceError `not_ready` */
  async busyBackends(organizationId: string | undefined): Promise<number> {
    const pools = (await this.#report('pools')).filter(
      ({ pool }) => organizationOfPool(pool) === (organizationId ?? organizationOfPool(pool)),
    );
    return pools.reduce((sum, { active }) => sum + active, 0);
  }

  async #report<Of extends keyof Reports>(of: Of): Promise<Reports[Of][]> {
    const lines: Reports[Of][] = [];
    const slices = new TimeSlices();
    for (const reply of await this.#ask({ name: 'report', of })) {
      for (const line of reply.split('\n')) {
        if (line !== '') lines.push(JSON.parse(line));
        await slices.pause();
      }
    }
    return lines;
  }

  async #count(request: Request): Promise<number> {
    return (await this.#ask(request)).reduce((sum, reply) => sum + Number(reply), 0);
  }

  async #ask(request: Request): Promise<readonly string[]> {
    const { replies, missing } = await this.#sessions.askAll(request);
    if (missing > 0) throw new ServiceError('not_ready', `${missing} of the service's processes do not answer`, { retryAfterS: 1 });
    return replies;
  }
}

/** What this process answers. */
class OwnActivity {
  readonly #parts: ActivityParts;

  constructor(parts: ActivityParts) {
    this.#parts = parts;
  }

  async answer(request: Request): Promise<string> {
    switch (request.name) {
      case 'report':
        return this.#lines(request.of === 'pools' ? await this.#pools() : this[request.of]());
      case 'find':
        return this.#meant(request)
          .map(([pool]) => pool)
          .join('\n');
      case 'end': {
        const meant = this.#meant(request);
        for (const [, session] of meant) session.terminate();
        return String(meant.length);
      }
      case 'reconnect':
        return String(this.#reconnect(request.organizationId));
      case 'reload':
        this.#parts.reload();
        return '1';
      case 'set':
        this.#parts.set(request.setting, request.value);
        return '1';
    }
  }

  /** As many lines as it takes, in several turns of the event loop. */
  async #lines(values: Iterable<unknown>): Promise<string> {
    const slices = new TimeSlices();
    const lines: string[] = [];
    for (const value of values) {
      lines.push(JSON.stringify(value));
      await slices.pause();
    }
    return lines.join('\n');
  }

  #meant({ organizationId, number, sessionId }: Omit<Extract<Request, { name: 'end' }>, 'name'>) {
    const { sessions } = this.#parts;
    return [...sessions.all()].filter(([pool, session]) => {
      if (organizationId !== undefined) return organizationOfPool(pool) === organizationId;
      return session.number === number && (sessionId ?? sessions.idOf(number)) === sessions.idOf(number);
    });
  }

  #reconnect(organizationId: string | undefined): number {
    let count = 0;
    for (const { pool } of this.#parts.clusters()) {
      for (const own of [...pool.organizations()]) {
        if (own.organizationId !== (organizationId ?? own.organizationId)) continue;
        count += own.size;
        pool.retire(own.tenantId);
      }
    }
    return count;
  }

  *statistics(): Iterable<Reports['statistics']> {
    const { counters } = this.#parts;
    const seconds = Math.max(1, counters.periodMs) / 1_000;
    for (const [id, now, before] of counters.totals()) {
      const lately = TOTALS.map((name) => now[name] - before[name]);
      yield [id, TOTALS.map((name) => now[name]), lately, lately.map((count) => count / seconds)];
    }
  }

  async #pools(): Promise<Iterable<PoolActivity>> {
    const now = performance.now();
    const slices = new TimeSlices();
    const byName = new Map<string, PoolActivity>();
    const add = (one: PoolActivity) => {
      const known = byName.get(one.pool);
      byName.set(one.pool, known === undefined ? one : together(known, one));
    };
    for (const { pool } of this.#parts.clusters()) {
      for (const own of pool.organizations()) {
        const { idle, opening } = own;
        const counts = { active: own.leased.size, idle, opening, leaving: own.leaving.size };
        add({ pool: own.tenantId, clients: 0, waiting: 0, ...counts, longestWaitMs: 0 });
      }
    }
    const none = { active: 0, idle: 0, opening: 0, leaving: 0 };
    for (const [pool, session] of [...this.#parts.sessions.all()]) {
      const { state, stateSince = now } = session.describe() ?? {};
      // Those of an organization that is paused wait too, and in no pool.
      const waits = state === 'waiting for a backend';
      const longestWaitMs = waits ? Math.max(0, now - stateSince) : 0;
      add({ pool, clients: Number(!waits), waiting: Number(waits), ...none, longestWaitMs });
      await slices.pause();
    }
    return byName.values();
  }

  *clients(): Iterable<ClientActivity> {
    const { sessions } = this.#parts;
    // What comes and goes meanwhile must not disturb the iteration.
    for (const [pool, session] of [...sessions.all()]) {
      const described = session.describe();
      if (described === undefined) continue;
      const { door, state, sourceIp, endpoints, pins } = described;
      yield {
        sessionId: sessions.idOf(session.number),
        number: session.number,
        pool,
        door,
        state,
        address: sourceIp,
        port: endpoints?.remotePort ?? 0,
        localAddress: endpoints?.localAddress ?? '',
        localPort: endpoints?.localPort ?? 0,
        connectedAt: dateOf(described.connectedAt),
        since: dateOf(described.stateSince),
        waitMs: state === 'waiting for a backend' ? performance.now() - described.stateSince : 0,
        backendProcessId: session.backendProcessId ?? 0,
        cipher: described.cipher ?? '',
        applicationName: (described.applicationName ?? described.userAgent ?? '').slice(0, APPLICATION_MAX_CHARACTERS),
        pins,
      };
    }
  }

  *servers(): Iterable<ServerActivity> {
    for (const { name: cluster, pool } of this.#parts.clusters()) {
      for (const own of [...pool.organizations()]) {
        for (const backend of own.backends) {
          const { endpoints, processId } = backend;
          yield {
            pool: own.tenantId,
            cluster,
            processId,
            state: own.leased.has(backend) ? 'active' : own.leaving.has(backend) ? 'leaving' : 'idle',
            address: endpoints?.remoteAddress ?? 'unix',
            port: endpoints?.remotePort ?? 0,
            localAddress: endpoints?.localAddress ?? 'unix',
            localPort: endpoints?.localPort ?? 0,
            connectedAt: dateOf(backend.openedAt),
            usedAt: dateOf(backend.usedAt),
          };
        }
      }
    }
  }
}

const APPLICATION_MAX_CHARACTERS = 64;

/** Of a time on performance.now()'s clock. */
function dateOf(at: number): number {
  return Date.now() - (performance.now() - at);
}

function totalsOf(values: readonly number[]): Totals {
  return Object.fromEntries(TOTALS.map((name, at) => [name, values[at] ?? 0])) as Totals;
}

function add(sums: Totals, values: readonly number[]): void {
  for (const [at, name] of TOTALS.entries()) sums[name] += values[at] ?? 0;
}

function together(a: PoolActivity, b: PoolActivity): PoolActivity {
  return {
    pool: a.pool,
    clients: a.clients + b.clients,
    waiting: a.waiting + b.waiting,
    active: a.active + b.active,
    idle: a.idle + b.idle,
    opening: a.opening + b.opening,
    leaving: a.leaving + b.leaving,
    longestWaitMs: Math.max(a.longestWaitMs, b.longestWaitMs),
  };
}
