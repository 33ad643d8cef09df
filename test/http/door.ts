import { connect, type Socket } from 'node:net';
import type { FastifyInstance } from 'fastify';
import { createHttpApp, type HttpAppOptions } from '../../http/app.ts';
import { UsageCounters } from '../../src/catalog/usage.ts';
import { readConfig } from '../../src/config.ts';
import { ServiceError } from '../../src/errors.ts';
import { Multiplexers } from '../../src/multiplex/multiplexer.ts';
import type { Observation, Observe } from '../../src/observation.ts';
import { InputScheduler } from '../../src/runtime/input-scheduler.ts';
import { MemoryBudget } from '../../src/runtime/memory-budget.ts';
import { QueryScheduler } from '../../src/sql/query-scheduler.ts';
import { RESULT_BOUNDS } from '../../src/sql/result-budget.ts';

/** The JSON door alone, on a socket of its own: for what it answers without any organization. */
export interface Door {
  readonly app: FastifyInstance;
  readonly url: string;
  readonly port: number;
  readonly observations: Observation[];
}

const nobody = async () => {
  throw new ServiceError('unauthorized', 'the API key is not valid');
};

/** All that the door works with, where nobody has a key. */
export function standIn(observe: Observe = () => {}): HttpAppOptions {
  return {
    authenticator: { authenticate: nobody, recognize: () => undefined, isInvalid: () => false },
    router: {
      inputs: new InputScheduler(),
      lease: nobody,
      results: new MemoryBudget(RESULT_BOUNDS),
      catalog: {
        organizations: { find: nobody, updateProfile: nobody },
        audit: { list: nobody, verify: nobody },
        savedQueries: { list: nobody, find: nobody, save: nobody, delete: nobody },
      },
    },
    signUps: { create: nobody },
    operator: { dropAsAsked: nobody },
    clones: { create: nobody, list: nobody, delete: nobody },
    keys: { list: nobody, create: nobody, update: nobody, revoke: nobody, rotate: nobody },
    statistics: {
      queries: { read: nobody },
      usage: { read: nobody, counters: new UsageCounters() },
      dataBytes: nobody,
      requestsOf: () => 0,
      relationCounters: nobody,
    },
    sessions: { idOf: String, list: nobody, signal: nobody },
    refusals: { count: () => undefined },
    queries: new QueryScheduler({ lease: nobody, mayKeepBusy: () => false }, new Multiplexers({ depth: 1, spread: 1 }), observe),
    config: readConfig({}),
    observe,
    connection: () => ({ host: '127.0.0.1', port: 6432, sslmode: 'disable' }),
    ready: async () => {},
  };
}

export async function openDoor(options: Partial<HttpAppOptions> = {}): Promise<Door> {
  const observations: Observation[] = [];
  const app = createHttpApp({ ...standIn((observation) => observations.push(observation)), ...options });
  await app.listen({ host: '127.0.0.1', port: 0 });
  const address = app.server.address();
  if (typeof address !== 'object' || address === null) throw new Error('the door listens nowhere');
  return { app, url: `http://127.0.0.1:${address.port}`, port: address.port, observations };
}

/** A bare connection: sends what it is told to, and collects what comes back until the other side closes. */
export function talk(port: number, ...chunks: readonly string[]): { readonly socket: Socket; readonly reply: Promise<string> } {
  const socket = connect(port, '127.0.0.1');
  const received: Buffer[] = [];
  socket.on('data', (chunk) => received.push(chunk));
  const reply = new Promise<string>((resolve, reject) => {
    socket.on('error', reject);
    socket.on('close', () => resolve(Buffer.concat(received).toString()));
  });
  for (const chunk of chunks) socket.write(chunk);
  return { socket, reply };
}
