import { expect, vi } from 'vitest';
import { FastPath } from '../../http/fast-path/connection.ts';
import type { Observation } from '../../src/observation.ts';
import { eventually } from '../support/eventually.ts';
import { startTestService, type TestOrganization, type TestService } from '../support/service.ts';
import { openElsewhere, plainRequest, RawClient, type RawReply } from './raw-client.ts';

/** The bytes of a request that has this X-Request-Id. */
export type Ask = (requestId: string) => string;

/** How a request was answered, and what was told of it, without what differs from one to the next. */
export interface Outcome {
  readonly reply: { readonly status: number };
  readonly observed: unknown;
}

type Observed = Extract<Observation, { name: 'http.request' }>;

/** A service whose connections on the fast path are compared with those that Node's server serves. */
export class Parity {
  readonly service: TestService;
  readonly acme: TestOrganization;
  readonly port: number;
  /** Connections that leave the fast path are counted, lest something be compared with itself. */
  readonly #leave = vi.spyOn(FastPath.prototype, 'leave');
  #made = 0;

  private constructor(service: TestService, acme: TestOrganization) {
    this.service = service;
    this.acme = acme;
    this.port = Number(new URL(service.httpUrl).port);
  }

  static async start(variables: Readonly<Record<string, string>> = {}): Promise<Parity> {
    const service = await startTestService(variables);
    return new Parity(service, await service.signUp());
  }

  close(): Promise<void> {
    this.#leave.mockRestore();
    return this.service.close();
  }

  asking(body: unknown, { key = this.acme.apiKey, header }: { readonly key?: string; readonly header?: string } = {}): Ask {
    return (id) => plainRequest(key, body, `X-Request-Id: ${id}`, ...(header === undefined ? [] : [header]));
  }

  /** @param isPlain whether the fast path answers it itself */
  async expectSame(ask: Ask, status: number, isPlain = true): Promise<void> {
    const left = this.#leave.mock.calls.length;
    const fast = await RawClient.open(this.port);
    const onFastPath = await this.outcomeOf(fast, ask);
    expect(this.#leave.mock.calls.length - left).toBe(isPlain ? 0 : 1);
    fast.socket.destroy();
    const client = await openElsewhere(this.port);
    expect(onFastPath).toEqual(await this.outcomeOf(client, ask));
    expect(onFastPath.reply.status).toBe(status);
    client.socket.destroy();
  }

  async outcomeOf(client: RawClient, ask: Ask): Promise<Outcome> {
    const id = `parity-${String(++this.#made).padStart(4, '0')}`;
    const reply = await client.ask(ask(id));
    return { reply: comparable(reply, id), observed: await this.#observed(id, Buffer.byteLength(reply.body)) };
  }

  /** @param bytesOut of the reply's body, in which the duration may have more or fewer digits */
  async #observed(requestId: string, bytesOut: number): Promise<unknown> {
    const { observations } = this.service;
    const isIt = (seen: Observation): seen is Observed => seen.name === 'http.request' && seen.origin.requestId === requestId;
    await eventually(`the end of ${requestId}`, () => observations.some(isIt));
    const all = observations.filter(isIt);
    expect(all).toHaveLength(1);
    const traffic = all[0]?.traffic;
    if (traffic !== undefined) expect(traffic.bytesOut).toBe(bytesOut);
    return blank(JSON.stringify({ ...all[0], traffic: traffic && { ...traffic, bytesOut: 0 } }), requestId);
  }
}

function comparable({ status, headers, body }: RawReply, requestId: string) {
  const { Date: date = '', 'content-length': length, ...others } = headers;
  expect(new Date(date).toUTCString()).toBe(date);
  expect(Math.abs(Date.parse(date) - Date.now())).toBeLessThan(60_000);
  if (length !== undefined) expect(Number(length)).toBe(Buffer.byteLength(body));
  return { status, hasLength: length !== undefined, headers: blank(JSON.stringify(others), requestId), body: blank(body, requestId) };
}

function blank(json: string, requestId: string): unknown {
  // Who holds the backends is told with the time since when.
  const told = json.replaceAll(requestId, 'THE-ID').replace(/ for \d+ s(?=\)[,. ])/g, ' for N s');
  return JSON.parse(told, (key, inner) => (key === 'durationMs' ? typeof inner : inner));
}
