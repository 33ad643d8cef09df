import { setImmediate as turn } from 'node:timers/promises';
import { expect, vi } from 'vitest';
import { RequestOutcomes } from '../../http/problems.ts';
import { eventually } from '../support/eventually.ts';
import { SeededRandom } from '../support/random.ts';
import { startTestService, type TestOrganization, type TestService } from '../support/service.ts';
import { openElsewhere, plainRequest, RawClient, type RawReply } from './raw-client.ts';
import { serverEnd } from './server-end.ts';

/** Bytes to send, a character for each; the mark stands in all that may be carried out. */
export type Conversation = (mark: string) => string;

/** What was answered, and which statements were carried out. */
export interface Heard {
  readonly replies: readonly { readonly status: number; readonly [part: string]: unknown }[];
  /** No reply broke off. */
  readonly whole: boolean;
  readonly carriedOut: readonly string[];
}

type Cut = (bytes: Buffer) => readonly Buffer[];

const random = new SeededRandom(21);

/** Ways in which the bytes of a conversation may arrive. */
export const CUTS: Readonly<Record<'whole' | 'heads and bodies' | 'pieces' | 'bytes', Cut>> = {
  whole: (bytes) => [bytes],
  'heads and bodies': (bytes) =>
    bytes
      .toString('latin1')
      .split(/(?<=\r\n\r\n)/)
      .map((part) => Buffer.from(part, 'latin1')),
  pieces: (bytes) => random.cut(bytes, 200),
  bytes: (bytes) => random.cut(bytes, bytes.length > 2_000 ? 8_000 : 1),
};

/** A connection that has not ended before ends with it, unless it is read as part of something else. */
const LAST = 'GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n';

/** A service to which the same bytes are sent on connections on the fast path and on those that Node's server serves. */
export class Talks {
  readonly service: TestService;
  readonly port: number;
  readonly #acme: TestOrganization;
  readonly #ends = vi.spyOn(RequestOutcomes.prototype, 'add');
  #made = 0;

  private constructor(service: TestService, acme: TestOrganization) {
    this.service = service;
    this.#acme = acme;
    this.port = Number(new URL(service.httpUrl).port);
  }

  /** What is never whole is refused before the test is over, and nothing that only comes slowly. */
  static async start(): Promise<Talks> {
    const service = await startTestService({ POSTERN_HTTP_HEADERS_TIMEOUT_MS: '60000', POSTERN_HTTP_REQUEST_TIMEOUT_MS: '60000' });
    return new Talks(service, await service.signUp());
  }

  sql(sql: string, ...headers: readonly string[]): string {
    return plainRequest(this.#acme.apiKey, { sql }, ...headers);
  }

  request(mark: string, ...headers: readonly string[]): string {
    return this.sql(`select '${mark}' as a`, ...headers);
  }

  /** A request that says something else instead of its length. */
  framed(framing: string, body: string): string {
    return this.request('').replace(/Content-Length: .*\r\n\r\n.*/s, () => `${framing}\r\n\r\n${body}`);
  }

  /** However the bytes arrive they are answered as Node's server answers them. */
  async expectSame(conversation: Conversation): Promise<Heard> {
    const expected = await this.elsewhere(conversation);
    expect(expected.whole).toBe(true);
    const outcomes = Object.entries(CUTS).map(async ([name, cut]) => [name, await this.onFastPath(conversation, cut)]);
    const all = Object.fromEntries(Object.keys(CUTS).map((name) => [name, expected]));
    expect(Object.fromEntries(await Promise.all(outcomes))).toEqual(all);
    return expected;
  }

  async elsewhere(conversation: Conversation): Promise<Heard> {
    return this.#talk(await openElsewhere(this.port), conversation, CUTS.whole);
  }

  async onFastPath(conversation: Conversation, cut: Cut): Promise<Heard> {
    return this.#talk(await RawClient.open(this.port), conversation, cut);
  }

  async #talk(client: RawClient, conversation: Conversation, cut: Cut): Promise<Heard> {
    const mark = `mark-${String(++this.#made).padStart(5, '0')}`;
    const bytes = conversation(mark);
    const end = await serverEnd(client);
    const last = /^Connection: close|HTTP\/1\.0\r\n(?!Connection)/m.test(bytes) ? '' : LAST;
    for (const piece of cut(Buffer.from(bytes + last, 'latin1'))) {
      // What comes behind the end resets the connection, and a client that writes then does not read the reply any more.
      if (end.destroyed) break;
      client.send(piece);
      await turn();
    }
    const { replies, whole } = await client.replies();
    // What was still at work when the connection ended is told later.
    await eventually('the door knows that it has ended', () => end.closed);
    for (const ends of new Set(this.#ends.mock.contexts as RequestOutcomes[])) await ends.allReported();
    return { whole, replies: replies.map((reply) => said(reply, mark)), carriedOut: this.#carriedOut(mark) };
  }

  #carriedOut(mark: string): string[] {
    return this.service.observations
      .flatMap((seen) => (seen.name === 'http.request' && seen.statement !== undefined ? [seen.statement.sql] : []))
      .filter((sql) => sql.includes(mark))
      .map((sql) => sql.replaceAll(mark, 'MARK'))
      .sort();
  }
}

function said({ status, headers, body }: RawReply, mark: string) {
  const { rows, code, detail } = JSON.parse(body.replaceAll(mark, 'MARK') || '{}');
  const id = headers['x-request-id']?.replace(mark, 'MARK').replace(/^[0-9a-f-]{36}$/, 'made');
  return { status, id, rows, code, detail };
}
