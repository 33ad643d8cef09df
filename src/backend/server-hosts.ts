import { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';

export interface HostAddress {
  /** Host name or address; a path beginning with `/` is the folder of a Unix socket. */
  readonly host: string;
  readonly port: number;
}

/** Whether a host is used whose server is a standby. `read-write` is `primary`: Postern's sessions never are read-only by default. */
export const SESSION_TARGETS = ['any', 'primary', 'read-write'] as const;
export type SessionTarget = (typeof SESSION_TARGETS)[number];

/** A session for nothing but to ask whether the host may be used. */
export interface HostSession {
  /** @throws when it does not answer within {@link HOST_TIMEOUT_MS} */
  isStandby(): Promise<boolean>;
  close(): void;
}

/** How long each host may take to let somebody log in, and to answer. */
export const HOST_TIMEOUT_MS = 2_000;
const ASK_EVERY_MS = 500;
const AGAIN_MS = 200;

/** The server is a standby, and only a primary may be used. */
class StandbyError extends Error {
  /** cannot_connect_now */
  readonly code = '57P03';

  constructor() {
    super('the server is a standby');
  }
}

/** The hosts of a URL that names several, such as a primary and its standbys. One is in use, by everybody who connects. */
export class ServerHosts {
  readonly all: readonly HostAddress[];
  readonly #target: SessionTarget;
  #open: (address: HostAddress) => Promise<HostSession>;
  readonly #connections = new Set<Duplex>();
  #current: HostAddress;
  #isFound = false;

  /** @param open logs in, within {@link HOST_TIMEOUT_MS} */
  constructor(all: readonly [HostAddress, ...HostAddress[]], target: SessionTarget, open: (address: HostAddress) => Promise<HostSession>) {
    this.all = all;
    this.#current = all[0];
    this.#target = target;
    this.#open = open;
  }

  /** The last one that was found good; until one was, the first. */
  get current(): HostAddress {
    return this.#current;
  }

  /** How many there are to the host in use. */
  get connections(): number {
    return this.#connections.size;
  }

  includes({ host, port }: HostAddress): boolean {
    return this.all.some((one) => one.host === host && one.port === port);
  }

  isInUse({ host, port }: HostAddress): boolean {
    return this.#current.host === host && this.#current.port === port;
  }

  /** Logs in as the others do from now on. @param others the same hosts */
  openAs(others: ServerHosts): void {
    this.#open = others.#open;
  }

  /** A socket to the host in use, for a driver that connects it. */
  socket(): Socket {
    return this.track(new Socket());
  }

  /** A connection to the host in use is dropped when another takes its place: a server that hangs would not end it. */
  track<Connection extends Duplex>(connection: Connection): Connection {
    this.#connections.add(connection);
    connection.once('close', () => this.#connections.delete(connection));
    return connection;
  }

  /** @param inHotStandby what the server reports at login @throws Error with the SQLSTATE 57P03 if its sessions are not to be used */
  check(inHotStandby: string | undefined): void {
    if (this.#target !== 'any' && inHotStandby === 'on') throw new StandbyError();
  }

  /** Tries all hosts, the one in use first, until one may be used. @throws what the last one said */
  async seek(): Promise<void> {
    (await this.#openFirst()).close();
  }

  /** As {@link seek}, unless one has been found good already. */
  async find(): Promise<void> {
    if (!this.#isFound) await this.seek();
  }

  /**
   * Follows the server from one host to the other.
   * @param moved called when another host is in use
   * @returns a function that ends it
   */
  watch(moved: (from: HostAddress, to: HostAddress) => void): () => Promise<void> {
    const stop = new AbortController();
    const watching = this.#watch(moved, stop.signal);
    return () => {
      stop.abort();
      return watching;
    };
  }

  async #watch(moved: (from: HostAddress, to: HostAddress) => void, signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      const former = this.#current;
      const session = await this.#openFirst().catch(() => undefined);
      if (session !== undefined && this.#current !== former) {
        for (const connection of this.#connections) connection.destroy();
        moved(former, this.#current);
      }
      if (session === undefined) await pause(AGAIN_MS, signal);
      else await this.#untilLost(session, signal);
    }
  }

  async #untilLost(session: HostSession, signal: AbortSignal): Promise<void> {
    try {
      while (!signal.aborted && (await this.#isGood(session))) await pause(ASK_EVERY_MS, signal);
    } catch {
      // All hosts are tried.
    } finally {
      session.close();
    }
  }

  async #openFirst(): Promise<HostSession> {
    let failure: unknown;
    for (const address of [this.#current, ...this.all.filter((one) => one !== this.#current)]) {
      try {
        const session = await this.#openGood(address);
        this.#current = address;
        this.#isFound = true;
        return session;
      } catch (error) {
        failure = error;
      }
    }
    throw failure;
  }

  async #openGood(address: HostAddress): Promise<HostSession> {
    const session = await this.#open(address);
    try {
      if (await this.#isGood(session)) return session;
      throw new StandbyError();
    } catch (error) {
      session.close();
      throw error;
    }
  }

  async #isGood(session: HostSession): Promise<boolean> {
    return !(await session.isStandby()) || this.#target === 'any';
  }
}

/** @returns the same login at the host in use */
export function inUse<Login extends HostAddress & { readonly hosts?: ServerHosts | undefined }>(login: Login): Login {
  return login.hosts?.includes(login) ? { ...login, ...login.hosts.current } : login;
}

async function pause(ms: number, signal: AbortSignal): Promise<void> {
  await delay(ms, undefined, { signal, ref: false }).catch(() => {});
}
