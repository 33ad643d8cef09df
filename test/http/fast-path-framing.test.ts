import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { openElsewhere, RawClient } from './raw-client.ts';
import { type Conversation, Talks } from './talks.ts';

let talks: Talks;
beforeAll(async () => {
  talks = await Talks.start();
});
afterAll(() => talks.service.close());

const request = (mark: string, ...headers: readonly string[]) => talks.request(mark, ...headers);

describe('one behind the other', () => {
  it('all are answered, each as its own', async () => {
    const { replies } = await talks.expectSame((mark) =>
      [1, 2, 3, 4, 5].map((n) => request(`${mark}-${n}`, `X-Request-Id: ${mark}-${n}`)).join(''),
    );
    expect(replies.slice(0, 5)).toEqual(
      [1, 2, 3, 4, 5].map((n) => ({ status: 200, id: `MARK-${n}`, rows: [{ a: `MARK-${n}` }], code: undefined, detail: undefined })),
    );
    expect(replies).toHaveLength(6);
  });

  it('plain ones and others', async () => {
    const other = (mark: string) => `GET /api/nothing HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: ${mark}\r\n\r\n`;
    const { replies } = await talks.expectSame(
      (mark) => request(`${mark}-1`) + other(`${mark}-2`) + request(`${mark}-3`) + other(`${mark}-4`),
    );
    expect(replies.map(({ status }) => status)).toEqual([200, 404, 200, 404, 200]);
  });

  it('that are slow, quick, wrong and long', async () => {
    const sql = (text: string) => talks.sql(text);
    const { replies } = await talks.expectSame(
      (mark) =>
        sql(`select pg_sleep(0.1), '${mark}-1' as a`) +
        sql(`select '${mark}-2' as a`) +
        sql(`selec '${mark}-3' as a`) +
        sql(`select '${mark}-4' as a, repeat('x', 200000) as b`) +
        sql(`select '${mark}-5' as a${' '.repeat(30_000)}`) +
        sql(`select '${mark}-6' as a${' '.repeat(70_000)}`) +
        sql(`select '${mark}-7' as a`),
    );
    expect(replies.map(({ status }) => status)).toEqual([200, 200, 400, 200, 200, 200, 200, 200]);
  });

  it('with lines between them', async () => {
    await talks.expectSame((mark) => `\r\n${request(`${mark}-1`)}\r\n\r\n${request(`${mark}-2`)}\r\n`);
  });

  it.each([['on the fast path', RawClient.open] as const, ['elsewhere', openElsewhere] as const])(
    'with nonsense behind what has been answered, %s',
    async (_where, open) => {
      const client = await open(talks.port);
      expect(await client.ask(request('first'))).toMatchObject({ status: 200 });
      client.send('nonsense\r\n\r\n');
      expect((await client.replies()).replies).toMatchObject([{ status: 400 }]);
    },
  );

  it.each([['on the fast path', RawClient.open] as const, ['elsewhere', openElsewhere] as const])(
    'with nonsense behind what is under way, which is the last that is answered, %s',
    async (_where, open) => {
      const client = await open(talks.port);
      client.send(`${request('first')}${talks.sql('select pg_sleep(0.1)')}nonsense\r\n\r\n`);
      const { replies, whole } = await client.replies();
      expect([replies.map(({ status }) => status), whole]).toEqual([[200, 200], true]);
      expect(replies[1]?.headers.Connection).toBe('close');
    },
  );

  it.each([['on the fast path', RawClient.open] as const, ['elsewhere', openElsewhere] as const])(
    'with a length that is too short is told what is wrong with what it covers, %s',
    async (_where, open) => {
      const client = await open(talks.port);
      client.send(request('ä').replace(/Content-Length: (\d+)/, (_, length) => `Content-Length: ${Number(length) - 1}`));
      const { replies } = await client.replies();
      expect(replies.map(({ status, body }) => [status, JSON.parse(body).message])).toEqual([
        [400, expect.stringMatching(/^the body is not valid JSON/)],
      ]);
    },
  );

  it.each([['on the fast path', RawClient.open] as const, ['elsewhere', openElsewhere] as const])(
    'with more behind what was to be the last is answered, %s',
    async (_where, open) => {
      const client = await open(talks.port);
      client.send(request('last', 'Connection: close') + request('one too many'));
      expect((await client.replies()).replies).toMatchObject([{ status: 200 }]);
    },
  );
});

describe.each([['on the fast path', RawClient.open] as const, ['elsewhere', openElsewhere] as const])(
  '%s, before the client sends no more',
  (_where, open) => {
    const whole = () => talks.sql('select 1');
    it.each<[name: string, bytes: () => string, refused: boolean]>([
      ['nothing comes', () => '', false],
      ['half a head comes', () => whole().slice(0, 40), true],
      ['a head comes', () => whole().replace(/\r\n\r\n.*/s, '\r\n\r\n'), true],
      ['half a body comes', () => whole().slice(0, -5), true],
      ['half a body comes in chunks', () => talks.framed('Transfer-Encoding: chunked', '5\r\n{"sql'), true],
    ])('%s', async (_what, bytes, refused) => {
      for (const before of [0, 1]) {
        const client = await open(talks.port);
        for (let n = 0; n < before; n += 1) await client.ask(whole());
        client.send(bytes());
        client.socket.end();
        const { replies } = await client.replies();
        const told = replies.map(({ status, body }) => [status, JSON.parse(body).code]);
        expect(told).toEqual(refused ? [[400, 'malformed_request']] : []);
      }
    });
  },
);

describe('of another kind', () => {
  it('for lines', async () => {
    const client = await RawClient.open(talks.port);
    const { headers, body } = await client.ask(request('lines', 'Accept: application/x-ndjson'));
    expect(headers['content-type']).toBe('application/x-ndjson');
    expect(body).toContain('{"row":{"a":"lines"}}\n');
    client.socket.destroy();
  });

  it.each<[name: string, conversation: Conversation, statuses: readonly number[]]>([
    [
      'in chunks',
      (mark) =>
        talks.framed(
          'Transfer-Encoding: chunked',
          `5\r\n{"sql\r\n${(`":"select '${mark}'"}`.length).toString(16)}\r\n":"select '${mark}'"}\r\n0\r\n\r\n`,
        ),
      [200, 200],
    ],
    ['waiting to be told to go on', (mark) => request(mark, 'Expect: 100-continue'), [100, 200, 200]],
    ['with another expectation', (mark) => request(mark, 'Expect: more'), [200, 200]],
    [
      'wanting HTTP/2',
      (mark) => request(mark, 'Connection: Upgrade, HTTP2-Settings', 'Upgrade: h2c', 'HTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA'),
      [200, 200],
    ],
    ['wanting HTTP/2, or to close', (mark) => request(mark, 'Connection: Upgrade, close', 'Upgrade: h2c'), [200]],
    ['closing', (mark) => request(mark, 'Connection: close'), [200]],
    ['by HTTP/1.0', (mark) => request(mark).replace('HTTP/1.1', 'HTTP/1.0'), [200]],
    ['by HTTP/1.0, to be kept', (mark) => request(mark, 'Connection: keep-alive').replace('HTTP/1.1', 'HTTP/1.0'), [200, 200]],
    ['by HTTP/2', (mark) => `PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n${request(mark)}`, [400]],
    ['with an absolute URI', (mark) => request(mark).replace('/api', 'http://postern.test/api'), [200, 200]],
    ['with a query string', (mark) => request(mark).replace('/query', '/query?a=1'), [400, 200]],
    ['in small letters', (mark) => request(mark).replace('POST', 'post'), [400]],
    ['without a host', (mark) => request(mark).replace(/Host: .*\r\n/, ''), [400]],
    ['with two hosts', (mark) => request(mark, 'Host: a'), [400]],
    ['once', (mark) => request(mark, `Idempotency-Key: ${mark}`), [200, 200]],
    ['compressed', (mark) => request(mark, 'Content-Encoding: gzip'), [415, 200]],
    ['in Latin-1', (mark) => request(mark).replace('/json', '/json; charset=latin1'), [415, 200]],
    ['as text', (mark) => request(mark).replace('application/json', 'text/plain'), [415, 200]],
    ['without a body', () => talks.framed('Content-Length: 0', ''), [400, 200]],
    ['larger than the fast path takes', (mark) => talks.sql(`select '${mark}'${' '.repeat(70_000)}`) + request(mark), [200, 200, 200]],
    ['with a large head', (mark) => request(mark, `Cookie: ${'x'.repeat(9_000)}`), [200, 200]],
    ['with too large a head', (mark) => request(mark, `Cookie: ${'x'.repeat(20_000)}`), [431]],
    ['TLS', () => '\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03', [400]],
  ])('%s', async (_name, conversation, statuses) => {
    const { replies } = await talks.expectSame(conversation);
    expect(replies.map(({ status }) => status)).toEqual(statuses);
  });
});
