import { once } from 'node:events';
import { createServer, type IncomingHttpHeaders } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type PlainQueryRequest, readPlainQueryRequest } from '../../http/fast-path/request.ts';
import { digestText } from '../../src/auth/tokens.ts';
import { SeededRandom } from '../support/random.ts';
import { plainRequest, RawClient } from './raw-client.ts';

const MAX = 16_777_216;
const BODY = '{"sql":"select 1"}';

const read = (request: string, maxBodyBytes = MAX) => readPlainQueryRequest(Buffer.from(request, 'latin1'), maxBodyBytes);
const PLAIN = plainRequest('pst_key', BODY);

/** The plain request with something else in it. */
const changed = (from: string | RegExp, to: string) => {
  const request = PLAIN.replace(from, to);
  if (request === PLAIN) throw new Error(`there is no ${from} in the plain request`);
  return request;
};
const withHeader = (line: string) => changed('\r\n', `\r\n${line}\r\n`);

describe('a plain request', () => {
  it('is read', () => {
    expect(read(PLAIN)).toEqual({
      kind: 'plain',
      host: 'localhost',
      apiKey: 'pst_key',
      keyDigest: digestText('pst_key'),
      requestId: undefined,
      userAgent: undefined,
      forwardedFor: undefined,
      bodyStart: PLAIN.length - BODY.length,
      end: PLAIN.length,
    });
  });

  it('is read though its body has not come, and though more has', () => {
    expect(read(PLAIN.slice(0, -BODY.length))).toEqual(read(PLAIN));
    expect(read(PLAIN + PLAIN)).toEqual(read(PLAIN));
  });

  it.each([
    ['names in small letters', 'x-request-id: 1', { requestId: '1' }],
    ['names in capitals', 'X-REQUEST-ID: 1', { requestId: '1' }],
    ['names in odd letters', 'x-rEQUEST-iD: 1', { requestId: '1' }],
    ['no space', 'X-Request-Id:1', { requestId: '1' }],
    ['space around', 'X-Request-Id:  1 2  ', { requestId: '1 2' }],
    ['nothing', 'User-Agent:', { userAgent: '' }],
    ['nothing but space', 'User-Agent:  ', { userAgent: '' }],
    ['colons', 'X-Forwarded-For: a: b', { forwardedFor: 'a: b' }],
    ['what nothing reads', 'Cookie: a=b', {}],
    ['an accept', 'Accept: */*', {}],
    ['keep-alive', 'Connection: Keep-Alive', {}],
  ])('may have %s in a header', (_name, line, expected) => {
    expect(read(withHeader(line))).toMatchObject({ apiKey: 'pst_key', ...expected });
  });

  it.each(['Application/JSON', 'application/json;charset=utf-8', 'application/json; charset=UTF-8'])('may be %s', (type) => {
    expect(read(changed('application/json', type))).toBeDefined();
  });
});

describe('a request is none that', () => {
  it.each([
    ['has another method', changed('POST', 'post')],
    ['has a longer method', changed('POST', 'XPOST')],
    ['has another path', changed('/query', '/querx')],
    ['has a query string', changed('/query', '/query?')],
    ['has an absolute URI', changed('/api', 'http://x/api')],
    ['has another version', changed('HTTP/1.1', 'HTTP/1.0')],
    ['has two spaces', changed('POST ', 'POST  ')],
    ['begins with a line', `\r\n${PLAIN}`],
    ['ends lines otherwise', changed('\r\n', '\n')],
    ['ends its head otherwise', changed('\r\n\r\n', '\n\n')],
    ['has no end of its head', PLAIN.slice(0, PLAIN.indexOf('\r\n\r\n') + 3)],
    ['has no host', changed(/Host: .*\r\n/, '')],
    ['has an empty host', changed('localhost', '')],
    ['has no key', changed(/Authorization: .*\r\n/, '')],
    ['has an empty key', changed('pst_key', '')],
    ['has no type', changed(/Content-Type: .*\r\n/, '')],
    ['is of another type', changed('/json', '/json5')],
    ['is of another charset', changed('/json', '/json; charset=latin1')],
    ['has no length', changed(/Content-Length: .*\r\n/, '')],
    ['has a length of nothing', changed('Length: 18', 'Length:')],
    ['has a length of 0', changed('Length: 18', 'Length: 0')],
    ['has a length with a 0', changed('Length: 18', 'Length: 018')],
    ['has a length with a sign', changed('Length: 18', 'Length: +18')],
    ['has a negative length', changed('Length: 18', 'Length: -18')],
    ['has a length in hex', changed('Length: 18', 'Length: 0x12')],
    ['has a length with an exponent', changed('Length: 18', 'Length: 18e0')],
    ['has a length with a fraction', changed('Length: 18', 'Length: 18.0')],
    ['has a length with a space in it', changed('Length: 18', 'Length: 1 8')],
    ['has a list of lengths', changed('Length: 18', 'Length: 18, 18')],
    ['has a length beyond the fast path', changed('Length: 18', 'Length: 65536')],
    ['has a length of many digits', changed('Length: 18', 'Length: 000000000000000000000018')],
    ['has a header twice', withHeader('Content-Length: 18')],
    ['has a header twice in other letters', withHeader('content-length: 18')],
    ['has chunks', withHeader('Transfer-Encoding: chunked')],
    ['has chunks instead of a length', changed('Content-Length: 18', 'Transfer-Encoding: chunked')],
    ['has a space before a colon', changed('Host:', 'Host :')],
    ['has a line that goes on', changed('localhost', 'postern\r\n .test')],
    ['has a line that goes on with a tab', changed('localhost', 'postern\r\n\t.test')],
    ['has a line without a colon', withHeader('Host')],
    ['has a line without a name', withHeader(': x')],
    ['has a NUL', changed('localhost', 'postern\0')],
    ['has a tab', changed('Length: 18', 'Length: 18\t')],
    ['has a vertical tab', changed('Host: ', 'Host: \v')],
    ['has a form feed', changed('Host: ', 'Host: \f')],
    ['has a CR', changed('localhost', 'postern\rtest')],
    ['has an LF', changed('localhost', 'postern\ntest')],
    ['has a byte beyond ASCII', changed('localhost', 'p\xf6stern')],
    ['has a space beyond ASCII', changed('Host: ', 'Host:\xa0')],
    ['wants an upgrade', withHeader('Connection: Upgrade, HTTP2-Settings')],
    ['wants another protocol', withHeader('Upgrade: h2c')],
    ['wants the connection closed', withHeader('Connection: close')],
    ['waits to be told to go on', withHeader('Expect: 100-continue')],
    ['wants lines', withHeader('Accept: application/json;q=0.5, application/x-NDJSON')],
    ['is carried out once', withHeader('Idempotency-Key: 1')],
    ['is compressed', withHeader('Content-Encoding: gzip')],
    ['has a trailer', withHeader('Trailer: x')],
    ['has a header that nobody knows', withHeader('X-Nobody: 1')],
    ['has a header named as what objects have', withHeader('constructor: 1')],
    ['has a large head', withHeader(`Cookie: ${'x'.repeat(8_192)}`)],
  ])('%s', (_name, request) => {
    expect(read(request)).toBeUndefined();
  });

  it('has a larger body than it may', () => {
    expect(read(PLAIN, BODY.length)).toBeDefined();
    expect(read(PLAIN, BODY.length - 1)).toBeUndefined();
  });
});

interface Seen {
  readonly method: string;
  readonly url: string;
  readonly headers: IncomingHttpHeaders;
  readonly body: string;
}

describe('what is read is what Node reads', () => {
  const node = createServer(async (request, reply) => {
    const { method, url, headers } = request;
    reply.end(JSON.stringify({ method, url, headers, body: await text(request.setEncoding('latin1')) }));
  });
  let client: RawClient;
  beforeAll(async () => {
    await once(node.listen(0, '127.0.0.1'), 'listening');
    client = await RawClient.open((node.address() as AddressInfo).port);
  });
  afterAll(() => {
    client.socket.destroy();
    node.close();
  });

  /** With another request behind it, which shows where Node takes it to end. */
  async function expectSame(
    bytes: string,
    { apiKey, requestId, userAgent, forwardedFor, bodyStart, end }: PlainQueryRequest,
  ): Promise<void> {
    const whole = bytes.slice(0, end).padEnd(end, 'x');
    client.send(`${whole}GET /behind HTTP/1.1\r\nHost: localhost\r\n\r\n`);
    const [seen, behind]: Seen[] = [JSON.parse((await client.reply()).body), JSON.parse((await client.reply()).body)];
    expect(behind).toEqual({ method: 'GET', url: '/behind', headers: { host: 'localhost' }, body: '' });
    expect(seen).toMatchObject({ method: 'POST', url: '/api/query', body: whole.slice(bodyStart) });
    const { authorization = '', 'x-request-id': id, 'user-agent': agent, 'x-forwarded-for': forwarded } = seen?.headers ?? {};
    expect({ id, agent, forwarded }).toEqual({ id: requestId, agent: userAgent, forwarded: forwardedFor });
    expect(authorization.replace(/^bearer +/i, '').trim()).toBe(apiKey);
  }

  it('however a request is changed', async () => {
    const random = new SeededRandom(8);
    let same = 0;
    for (let round = 0; round < 40_000; round += 1) {
      const bytes = mutate(random);
      const request = read(bytes);
      if (request === undefined) continue;
      same += 1;
      await expectSame(bytes, request);
    }
    expect(same).toBeGreaterThan(2_000);
  });
});

const LINES = [
  'Accept: */*',
  'accept-encoding: gzip, br',
  'User-Agent: a/1 (b; "c")',
  'x-request-id: abc',
  'X-Forwarded-For: 1.2.3.4, 5.6.7.8',
  'Connection: keep-alive',
  'Cookie: a=b; c',
  'traceparent: 00-1-2-01',
];

const SNIPPETS = [
  ...[
    '\r',
    '\n',
    '\r\n',
    '\r\n\r\n',
    '\n\n',
    '\0',
    '\t',
    '\v',
    '\f',
    ' ',
    '  ',
    ':',
    ',',
    ';',
    '"',
    '+',
    '0',
    '1',
    'x',
    '-',
    '_',
    '\x7f',
    '\x80',
    '\xa0',
    '\xff',
    'é',
  ],
  ...[
    'Transfer-Encoding: chunked\r\n',
    'transfer-encoding:chunked',
    'Transfer-Encoding',
    'chunked',
    'Content-Length: 5\r\n',
    'Content-Length:',
    'Connection: close\r\n',
  ],
  ...[
    'Expect: 100-continue\r\n',
    'Upgrade: x\r\n',
    'POST /api/query HTTP/1.1\r\n',
    'HTTP/1.0',
    'Trailer: x\r\n',
    ' folded\r\n',
    '0\r\n\r\n',
    ...LINES.map((line) => `${line}\r\n`),
  ],
];

function mutate(random: SeededRandom): string {
  let request = plainRequest('pst_key', '{"sql":"select 1"}', ...LINES.filter(() => random.below(3) === 0));
  for (let changes = 1 + random.below(3); changes > 0; changes -= 1) request = changeOnce(request, random);
  return request;
}

function changeOnce(request: string, random: SeededRandom): string {
  const at = random.below(request.length);
  const to = Math.min(request.length, at + 1 + random.below(20));
  const [before, here, after] = [request.slice(0, at), request.slice(at, to), request.slice(to)];
  const snippet = SNIPPETS[random.below(SNIPPETS.length)] ?? '';
  switch (random.below(8)) {
    case 0:
      return before + snippet + here + after;
    case 1:
      return before + snippet + here.slice(1) + after;
    case 2:
      return before + after;
    case 3:
      return before + here + here + after;
    case 4:
      return before + String.fromCharCode(random.below(256)) + here.slice(1) + after;
    case 5:
      return before + here.replace(/[a-z]/g, (letter) => letter.toUpperCase()) + after;
    case 6:
      return before + here.toLowerCase() + after;
    default:
      return withLinesSwapped(request, random);
  }
}

/** Lines of the head in another order, or one in two places. */
function withLinesSwapped(request: string, random: SeededRandom): string {
  const [head = '', ...bodies] = request.split('\r\n\r\n');
  const lines = head.split('\r\n');
  const one = lines[random.below(lines.length)] ?? '';
  lines.splice(random.below(lines.length), random.below(2), one);
  return [lines.join('\r\n'), ...bodies].join('\r\n\r\n');
}
