import { type ChildProcess, spawn } from 'node:child_process';
import { randomInt } from 'node:crypto';
import { once } from 'node:events';
import { chown, mkdir, open, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { runAs, serverAccount } from '../../src/embedded/data-directory.ts';
import { withSession } from '../../src/placement/admin-connection.ts';
import { textOf } from '../support/documents.ts';
import { eventually } from '../support/eventually.ts';
import { PROGRAMS_OF_15 } from '../support/postgres15.ts';
import { makeScratch } from '../support/scratch.ts';
import { signalServer } from '../support/server-process.ts';

const SUPERUSER = { username: 'postgres', password: 'superuser' };
const REPLICATION = { username: 'replicator', password: 'replicator' };
/** All below the ports of outgoing connections. No other server of the machine has the addresses, so they need not be free ones. */
const PORTS = { postgres: 5432, patroni: 8008, etcd: 2379, peers: 2380 };
const START_TIMEOUT_MS = 120_000;
const ASK_TIMEOUT_MS = 2_000;

/** A server of the cluster, with the Patroni that looks after it. */
export interface Node {
  readonly name: string;
  readonly address: string;
  /** Starts Patroni again, which starts its server. */
  start(): Promise<void>;
  /** Of Patroni first, so that it starts nothing meanwhile, then of its server. */
  signal(signal: 'SIGKILL' | 'SIGSTOP' | 'SIGCONT'): Promise<void>;
}

/** Three PostgreSQL 15 that Patroni looks after as the operators' page says, and etcd. */
export interface PatroniCluster {
  /** Names all three. */
  readonly url: string;
  /** Until one is the primary, one is its synchronous standby, and the third one follows too. */
  settled(): Promise<{ readonly leader: Node; readonly synchronous: Node }>;
  /** Until another one than this is the primary. */
  promoted(former: Node): Promise<void>;
  /** As `patronictl switchover` asks for it. */
  switchOver(from: Node, to: Node): Promise<void>;
  remove(): Promise<void>;
}

interface Member {
  readonly name: string;
  readonly role: string;
  readonly state: string;
  readonly lag?: number | string;
}

export async function startPatroni(): Promise<PatroniCluster> {
  const [account, scratch] = [await serverAccount(), await makeScratch()];
  const network = `127.${randomInt(1, 255)}.${randomInt(1, 255)}`;
  const processes: ChildProcess[] = [];
  /** All end by SIGKILL: Patroni does not react to SIGTERM while it waits for etcd. */
  const launch = async (name: string, program: string, words: readonly string[]): Promise<ChildProcess> => {
    const folder = join(scratch.path, name);
    const log = await open(join(scratch.path, `${name}.log`), 'a');
    const env = { PATH: process.env.PATH, HOME: folder, LC_ALL: 'C.UTF-8', PYTHONDONTWRITEBYTECODE: '1' };
    const child = spawn(program, words, { ...runAs(account), cwd: folder, env, stdio: ['ignore', log.fd, log.fd] });
    await once(child, 'spawn');
    await log.close();
    processes.push(child);
    return child;
  };
  const makeFolder = async (name: string) => {
    const path = join(scratch.path, name);
    await mkdir(path, { mode: 0o700 });
    if (account !== undefined) await chown(path, account.uid, account.gid);
    return path;
  };

  const [clients, peers] = [PORTS.etcd, PORTS.peers].map((port) => `http://${network}.1:${port}`);
  const data = await makeFolder('etcd');
  const listening = `--listen-client-urls=${clients} --advertise-client-urls=${clients} --listen-peer-urls=${peers}`;
  const alone = `--initial-advertise-peer-urls=${peers} --initial-cluster=etcd=${peers}`;
  await launch('etcd', '/usr/bin/etcd', ['--name=etcd', '--enable-v2', `--data-dir=${data}`, ...`${listening} ${alone}`.split(' ')]);

  const makeNode = async (index: number): Promise<Node> => {
    const [name, address] = [`node${index}`, `${network}.${index + 1}`];
    const folder = await makeFolder(name);
    const cluster = join(folder, 'data');
    const file = join(folder, 'patroni.yml');
    // JSON is YAML. By version 2 of etcd's API: by version 3, Patroni 3.0 has at times failed to name another synchronous standby.
    const own = {
      scope: 'postern',
      name,
      restapi: at(address, PORTS.patroni),
      etcd: { host: `${network}.1:${PORTS.etcd}` },
      postgresql: {
        ...at(address, PORTS.postgres),
        data_dir: cluster,
        bin_dir: PROGRAMS_OF_15,
        pgpass: join(folder, 'pgpass'),
        authentication: { superuser: SUPERUSER, replication: REPLICATION },
        pg_hba: ['host replication all 127.0.0.0/8 scram-sha-256', 'host all all 127.0.0.0/8 scram-sha-256'],
        parameters: { unix_socket_directories: folder, fsync: 'off' },
        basebackup: [{ checkpoint: 'fast' }],
      },
    };
    const lines = Object.entries(own).map(([key, value]) => `${key}: ${JSON.stringify(value)}`);
    await writeFile(file, `${textOf('With Patroni', 'yaml')}${lines.join('\n')}\n`);
    if (account !== undefined) await chown(file, account.uid, account.gid);
    let patroni: ChildProcess | undefined;
    return {
      name,
      address,
      async start() {
        patroni = await launch(name, '/usr/bin/patroni', [file]);
      },
      async signal(signal) {
        patroni?.kill(signal);
        const pid = Number.parseInt(await readFile(join(cluster, 'postmaster.pid'), 'utf8').catch(() => ''), 10);
        if (pid > 0) await signalServer(pid, signal);
      },
    };
  };
  const nodes = await Promise.all([1, 2, 3].map(makeNode));

  const ask = (node: Node, path: string, body?: object) =>
    fetch(`http://${node.address}:${PORTS.patroni}${path}`, {
      signal: AbortSignal.timeout(body === undefined ? ASK_TIMEOUT_MS : START_TIMEOUT_MS),
      ...(body === undefined ? {} : { method: 'POST', body: JSON.stringify(body) }),
    });
  const members = async (): Promise<readonly Member[]> => {
    for (const node of nodes) {
      const found = await ask(node, '/cluster')
        .then(async (reply) => (reply.ok ? ((await reply.json()) as { members: Member[] }) : undefined))
        .catch(() => undefined);
      if (found !== undefined) return found.members;
    }
    return [];
  };
  const has = (found: readonly Member[], role: string) => {
    const ready = found.filter(
      (one) => one.role === role && (one.role === 'leader' || one.lag === 0) && /^running|streaming$/.test(one.state),
    );
    return ready.length === 1 ? nodes.find(({ name }) => name === ready[0]?.name) : undefined;
  };
  const isPrimary = ({ address: host }: Node) => {
    const login = { host, port: PORTS.postgres, user: SUPERUSER.username, password: SUPERUSER.password };
    return withSession(
      login,
      async (session) => {
        const { rows } = await session.query<{ isPrimary: boolean }>('SELECT NOT pg_is_in_recovery() AS "isPrimary"');
        return rows[0]?.isPrimary ?? false;
      },
      ASK_TIMEOUT_MS,
    ).catch(() => false);
  };
  const cluster: PatroniCluster = {
    url: `postgres://${SUPERUSER.username}:${SUPERUSER.password}@${nodes.map(({ address }) => `${address}:${PORTS.postgres}`).join()}/postgres?target_session_attrs=read-write`,
    async settled() {
      let found: readonly Member[] = [];
      try {
        await eventually('the cluster has settled', async () => {
          found = await members();
          return ['leader', 'sync_standby', 'replica'].every((role) => has(found, role) !== undefined);
        });
      } catch (error) {
        const logs = await Promise.all(
          ['etcd', ...nodes.map(({ name }) => name)].map((name) => lastLines(join(scratch.path, `${name}.log`))),
        );
        throw new Error(`${JSON.stringify(found)}\n${logs.join('\n')}`, { cause: error });
      }
      const [leader, synchronous] = [has(found, 'leader'), has(found, 'sync_standby')];
      if (leader === undefined || synchronous === undefined) throw new Error('there is no leader');
      return { leader, synchronous };
    },
    async promoted(former) {
      const others = nodes.filter((node) => node !== former);
      await eventually('another one is the primary', async () => (await Promise.all(others.map(isPrimary))).includes(true));
    },
    async switchOver(from, to) {
      const reply = await ask(from, '/switchover', { leader: from.name, candidate: to.name });
      if (!reply.ok) throw new Error(`Patroni answered ${reply.status}: ${await reply.text()}`);
    },
    async remove() {
      await Promise.all(nodes.map((node) => node.signal('SIGKILL')));
      for (const child of processes) {
        child.kill('SIGKILL');
        if (child.exitCode === null && child.signalCode === null) await once(child, 'close');
      }
      // A server that was being started when its Patroni ended.
      await Promise.all(nodes.map((node) => node.signal('SIGKILL')));
      await scratch.remove();
    },
  };
  await Promise.all(nodes.map((node) => node.start()));
  return cluster;
}

function at(address: string, port: number) {
  return { listen: `${address}:${port}`, connect_address: `${address}:${port}` };
}

async function lastLines(path: string): Promise<string> {
  const text = await readFile(path, 'utf8').catch(() => '');
  return text.split('\n').slice(-30).join('\n');
}
