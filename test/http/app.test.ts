import { once } from 'node:events';
import type { IncomingMessage } from 'node:http';
import { get } from 'node:https';
import { connect } from 'node:net';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { ServiceError } from '../../src/errors.ts';
import { CERTIFICATE, CERTIFICATE_KEY } from '../support/certificate.ts';
import { type Door, openDoor, standIn, talk } from './door.ts';

let door: Door;
beforeAll(async () => {
  door = await openDoor();
});
afterAll(() => door.app.close());

async function post(
  path: string,
  body: string | Uint8Array | undefined,
  headers: Record<string, string> = { 'content-type': 'application/json' },
) {
  const reply = await fetch(door.url + path, { method: 'POST', headers, ...(body === undefined ? {} : { body }) });
  return { status: reply.status, headers: reply.headers, problem: JSON.parse(await reply.text()) };
}

const JSON_HINT = 'Add the header "Content-Type: application/json".';
const signup = (body: string | Uint8Array | undefined, headers?: Record<string, string>) => post('/api/auth/signup', body, headers);

describe('a problem document', () => {
  it('says everything about an error', async () => {
    const reply = await fetch(`${door.url}/api/nothing?here=1`, { headers: { 'x-request-id': 'my-id.1_A' } });
    expect(reply.status).toBe(404);
    expect(reply.headers.get('content-type')).toBe('application/problem+json');
    expect(reply.headers.get('x-request-id')).toBe('my-id.1_A');
    expect(await reply.json()).toEqual({
      type: '/docs#error-not_found',
      title: 'Not found',
      status: 404,
      detail: 'there is nothing at /api/nothing',
      instance: '/api/nothing',
      code: 'not_found',
      sqlstate: '42704',
      error: 'Not found',
      message: 'there is nothing at /api/nothing',
      hint: 'GET /docs lists every operation.',
      requestId: 'my-id.1_A',
      retryable: false,
    });
  });

  it.each([
    ['/api/query/', '/api/query'],
    ['/query', '/api/query'],
    ['/API/Migrations', '/api/migrations'],
    ['/api/transactions', '/api/transaction'],
    ['/api/auth/sign-up', '/api/auth/signup'],
    ['/api/audit/verfiy', '/api/audit/verify'],
    ['/openapi.json', '/api/openapi.json'],
    ['/wp-login.php', undefined],
    ['//', undefined],
    [`/api/query${'y'.repeat(5_000)}`, undefined],
  ])('about %.30s names the path that may be meant', async (path, meant) => {
    const { hint } = (await (await fetch(door.url + path, { method: 'POST' })).json()) as { readonly hint: string };
    expect(hint).toBe(`${meant === undefined ? '' : `Did you mean ${meant}? `}GET /docs lists every operation.`);
  });
});

describe('every reply', () => {
  it.each(['/api/auth/me', '/healthz', '/docs', '/nowhere'])('from %s has a request id and is kept by no cache', async (path) => {
    const { headers } = await fetch(door.url + path);
    expect(headers.get('x-request-id')).toMatch(/^[0-9a-f-]{36}$/);
    expect(headers.get('cache-control')).toBe('no-store');
    expect(headers.get('x-content-type-options')).toBe('nosniff');
    expect(headers.get('content-security-policy')).toContain("default-src 'none'");
  });

  it.each(['', 'a b', 'x'.repeat(129), 'a/b', 'ä'])('replaces the request id "%s"', async (id) => {
    const { headers } = await fetch(`${door.url}/healthz`, { headers: { 'x-request-id': id } });
    expect(headers.get('x-request-id')).toMatch(/^[0-9a-f-]{36}$/);
  });
});

describe('a head that can be read in two ways', () => {
  it.each([
    ['Host: a\r\nHOST: b', 'the request has more than one HOST header'],
    ['Host: a\r\nAuthorization: Bearer x\r\nauthorization: Bearer y', 'the request has more than one authorization header'],
    ['Host: a\r\nTransfer-Encoding: gzip, chunked', 'the only Transfer-Encoding accepted is "chunked"'],
  ])('is refused, and ends the connection: %j', async (headers, message) => {
    const refused = await talk(door.port, `POST /api/query HTTP/1.1\r\n${headers}\r\n\r\n2\r\n{}\r\n0\r\n\r\n`).reply;
    expect(refused).toMatch(/^HTTP\/1\.1 400 Bad Request\r\n/);
    expect(refused.split('\r\n\r\n')[1]).toContain(JSON.stringify(message).slice(1, -1));
  });
});

describe('a request without a host', () => {
  it('is refused as all others are, and ends the connection', async () => {
    const refused = await talk(door.port, 'GET /healthz HTTP/1.1\r\n\r\n').reply;
    expect(refused).toMatch(/^HTTP\/1\.1 400 Bad Request\r\nx-request-id: [0-9a-f-]{36}\r\n/);
    expect(JSON.parse(refused.split('\r\n\r\n')[1] ?? '')).toMatchObject({
      code: 'invalid_request',
      message: 'the request has no Host header',
    });
  });

  it('is served where HTTP/1.0 knows of none', async () => {
    expect(await talk(door.port, 'GET /healthz HTTP/1.0\r\n\r\n').reply).toMatch(/^HTTP\/1\.1 200 OK\r\n/);
  });
});

describe('methods and paths', () => {
  it('HEAD is GET without a body', async () => {
    const reply = await fetch(`${door.url}/healthz`, { method: 'HEAD' });
    expect([reply.status, await reply.text()]).toEqual([200, '']);
  });

  it.each([
    ['DELETE', '/api/query', 'OPTIONS, POST'],
    ['GET', '/api/query', 'OPTIONS, POST'],
    ['PUT', '/api/audit', 'GET, HEAD, OPTIONS, POST'],
    ['POST', '/healthz', 'GET, HEAD, OPTIONS'],
  ])('%s %s is 405 and Allow names what is possible', async (method, path, allow) => {
    const reply = await fetch(door.url + path, { method });
    expect(reply.status).toBe(405);
    expect(reply.headers.get('allow')).toBe(allow);
    const detail = `${method} is not allowed for ${path}; allowed: ${allow}`;
    expect(await reply.json()).toMatchObject({ code: 'method_not_allowed', instance: path, detail });
  });

  it('OPTIONS answers with Allow', async () => {
    const reply = await fetch(`${door.url}/api/query`, { method: 'OPTIONS' });
    expect([reply.status, reply.headers.get('allow')]).toEqual([204, 'OPTIONS, POST']);
  });

  it.each([
    ['GET', 405, 'allow: OPTIONS, POST'],
    ['OPTIONS', 204, 'allow: OPTIONS, POST'],
    ['POST', 401, '"instance":"/api/query"'],
  ])('%s of a whole URI is %i, as it is of its path', async (method, status, told) => {
    const { reply } = talk(door.port, `${method} http://postern.test/api/query HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n`);
    expect(await reply).toMatch(new RegExp(`^HTTP/1\\.1 ${status} `));
    expect(await reply).toContain(told);
  });

  it('a path that is no URL path is 400', async () => {
    const reply = await fetch(`${door.url}/api/%zz`);
    expect(reply.status).toBe(400);
    expect(reply.headers.get('x-request-id')).toMatch(/^[0-9a-f-]{36}$/);
    expect(await reply.json()).toMatchObject({ code: 'invalid_request', message: 'the path of the request is not a valid URL path' });
  });

  it.each(['/__proto__', '/constructor', '/api/../../etc/passwd'])('%s is nothing but 404', async (path) => {
    const { reply } = talk(door.port, `GET ${path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n`);
    expect(await reply).toMatch(/^HTTP\/1\.1 404 /);
  });
});

/** A sign-up by a name that is not allowed. */
const refused = (orgName: string, message: string): [body: string, status: number, code: string, message: string] => [
  JSON.stringify({ orgName, email: 'a@acme.test' }),
  400,
  'invalid_request',
  message,
];

describe('a body', () => {
  it.each([
    ['{"orgName":', 400, 'invalid_request', /^the body is not valid JSON/],
    ['', 400, 'invalid_request', 'the body: is required'],
    ['[]', 400, 'invalid_request', 'the body: must be a JSON object'],
    ['null', 400, 'invalid_request', 'the body: must be a JSON object'],
    ['{}', 400, 'invalid_request', 'orgName: is required; email: is required'],
    ['{"orgName":"A","email":"a@acme.test","admin":true}', 400, 'invalid_request', 'unknown field "admin"'],
    ['{"orgName":"A","email":"a@acme.test","__proto__":{}}', 400, 'invalid_request', 'unknown field "__proto__"'],
    ['{"orgName":"A","email":"a@acme.test","a":1,"b":2}', 400, 'invalid_request', 'unknown fields "a", "b"'],
    ['{"orgName":1,"email":"a@acme.test"}', 400, 'invalid_request', 'orgName: must be a string of 1 to 100 characters'],
    ['{"orgName":"  ","email":"a@acme.test"}', 400, 'invalid_request', 'orgName: must have 1 to 100 characters'],
    [`{"orgName":"${'x'.repeat(101)}","email":"a@acme.test"}`, 400, 'invalid_request', 'orgName: must have 1 to 100 characters'],
    ['{"orgName":"A\\u0000B","email":"a@acme.test"}', 400, 'invalid_request', 'orgName: must not contain control characters'],
    ...['\u200b', '\u202e', '\u2066', '\ufeff', '\u00ad', '\u2028', '\u2029', '\u{e0041}'].map((hidden) =>
      refused(`A${hidden}B`, 'orgName: must not contain invisible formatting characters or line separators'),
    ),
    ...['\u200d', '\u3164', '\u2800', '\u115f\ufe0f', '\u0301'].map((name) => refused(name, 'orgName: must have a visible character')),
    ['{"orgName":"A","email":"acme.test"}', 400, 'invalid_request', 'email: must be a valid e-mail address'],
    ['['.repeat(101), 400, 'invalid_request', 'the JSON body is nested deeper than 100 levels'],
  ])('%s is %i', async (body, status, code, message) => {
    const reply = await signup(body);
    expect(reply.status).toBe(status);
    expect(reply.problem).toMatchObject({ status, code, message: typeof message === 'string' ? message : expect.stringMatching(message) });
  });

  it.each([
    ['text/plain', '{}', JSON_HINT],
    ['application/x-www-form-urlencoded', 'a=1', JSON_HINT],
    ['application/json; charset=latin1', '{}', undefined],
    ['nonsense', '{}', JSON_HINT],
  ])('as %s is 415', async (contentType, body, hint) => {
    const { status, problem } = await signup(body, { 'content-type': contentType });
    expect([status, problem.code, problem.hint]).toEqual([415, 'unsupported_media_type', hint]);
  });

  it('without a content type is 415', async () => {
    const { status, problem } = await signup(new TextEncoder().encode('{}'), {});
    expect([status, problem.code, problem.hint]).toEqual([415, 'unsupported_media_type', JSON_HINT]);
  });

  it('that is compressed is 415', async () => {
    const { status, problem } = await signup('{}', { 'content-type': 'application/json', 'content-encoding': 'gzip' });
    expect([status, problem.message]).toEqual([415, 'a body with Content-Encoding gzip is not accepted']);
  });

  it('that is missing altogether is 400', async () => {
    const { status, problem } = await signup(undefined, {});
    expect([status, problem.message]).toEqual([400, 'the body: is required']);
  });

  it('of 17 MiB is 413, announced or in chunks, and the answer arrives', async () => {
    const body = new Uint8Array(17 * 1_024 * 1_024).fill(0x20);
    const announced = await signup(body);
    expect([announced.status, announced.problem.code]).toEqual([413, 'payload_too_large']);

    const chunked = await fetch(`${door.url}/api/auth/signup`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: new Blob([body]).stream(),
      duplex: 'half',
    } as RequestInit);
    expect([chunked.status, await chunked.json()]).toEqual([413, expect.objectContaining({ code: 'payload_too_large' })]);
  });

  it('of somebody without a key is read up to 16 KiB', async () => {
    const bodyOf = (length: number) => JSON.stringify({ orgName: 'x'.repeat(length - '{"orgName":""}'.length) });
    const { status, problem } = await signup(bodyOf(16_384));
    expect([status, problem.message]).toEqual([400, 'orgName: must have 1 to 100 characters; email: is required']);
    const refused = await signup(bodyOf(16_385));
    expect([refused.status, refused.problem.message]).toEqual([413, 'the request body is larger than 16384 bytes']);
  });

  it.each([
    ['POST /nowhere', 404],
    ['PUT /healthz', 405],
    ['POST /api/query', 401],
  ])('%s is answered before it has come', async (call, status) => {
    const { socket, reply } = talk(
      door.port,
      `${call} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 16000000\r\n\r\n{"sql":`,
    );
    const [answer] = await once(socket, 'data');
    expect(String(answer)).toContain(`HTTP/1.1 ${status} `);
    socket.destroy();
    await reply;
  });
});

describe('the query string', () => {
  it('has no unknown fields either', async () => {
    const { status, problem } = await post('/api/auth/signup?debug=1', '{}');
    expect([status, problem.message]).toEqual([400, 'unknown field "debug"']);
  });
});

describe('the key', () => {
  it.each([undefined, '', 'Bearer', 'Bearer ', 'Basic YTpi', 'Bearer a b', 'Bearer "x"'])(
    'sent as %j is 401 without a look-up',
    async (authorization) => {
      const reply = await fetch(`${door.url}/api/auth/me`, { headers: authorization === undefined ? {} : { authorization } });
      expect(reply.status).toBe(401);
      expect(reply.headers.get('www-authenticate')).toBe(
        authorization === undefined ? 'Bearer realm="postern"' : 'Bearer realm="postern", error="invalid_token"',
      );
      expect(await reply.json()).toMatchObject({ code: 'unauthorized', sqlstate: '28P01' });
    },
  );

  it('is checked before the body is read', async () => {
    const { status } = await post('/api/query', '{"sql":');
    expect(status).toBe(401);
  });

  it('may be sent with any case of "bearer"', async () => {
    const keys: unknown[] = [];
    const { authenticator } = standIn();
    const refuse = async (credential: unknown) => Promise.reject(keys.push(credential));
    const other = await openDoor({ authenticator: { ...authenticator, authenticate: refuse } });
    await fetch(`${other.url}/api/auth/me`, { headers: { authorization: 'bEARER pst_x' } });
    expect(keys).toEqual([{ kind: 'bearer', apiKey: 'pst_x' }]);
    await other.app.close();
  });
});

describe('failures', () => {
  let other: Door;
  afterEach(() => other.app.close());

  it('nobody expected are 500, said in full to the operator only', async () => {
    const cause = new Error('connect ECONNREFUSED 10.1.2.3:5432, password hunter2');
    other = await openDoor({ signUps: { create: async () => Promise.reject(cause) } });
    const reply = await fetch(`${other.url}/api/auth/signup`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'x-request-id': 'r1' },
      body: '{"orgName":"A","email":"a@acme.test"}',
    });
    const text = await reply.text();
    expect(reply.status).toBe(500);
    expect(JSON.parse(text)).toMatchObject({ code: 'internal', message: 'internal error', detail: 'internal error', requestId: 'r1' });
    expect(text).not.toContain('hunter2');
    expect(other.observations).toContainEqual({ name: 'service.failure', message: 'POST /api/auth/signup failed', cause, requestId: 'r1' });
  });

  it('that pass are told with Retry-After', async () => {
    other = await openDoor({
      signUps: { create: async () => Promise.reject(new ServiceError('not_ready', 'no database', { retryAfterS: 2.1 })) },
    });
    const reply = await fetch(`${other.url}/api/auth/signup`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: '{"orgName":"A","email":"a@acme.test"}',
    });
    expect([reply.status, reply.headers.get('retry-after')]).toEqual([503, '3']);
    expect(await reply.json()).toMatchObject({ code: 'not_ready', sqlstate: '57P03', retryable: true });
  });

  it('one sign-up too many says when the next is possible', async () => {
    const refuse = async () => Promise.reject(new ServiceError('rate_limited', 'too many sign-ups', { retryAfterS: 1800 }));
    other = await openDoor({ signUps: { create: refuse } });
    const reply = await fetch(`${other.url}/api/auth/signup`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: '{"orgName":"A","email":"a@acme.test"}',
    });
    expect(reply.status).toBe(429);
    expect(Object.fromEntries(reply.headers)).toMatchObject({
      'retry-after': '1800',
      'ratelimit-policy': '"signup";q=5;w=3600',
      ratelimit: '"signup";r=0;t=1800',
    });
  });
});

describe('observation', () => {
  it('tells of each call that reached an operation, and never of a key', async () => {
    const other = await openDoor();
    await fetch(`${other.url}/api/auth/me`, {
      headers: { authorization: 'Bearer pst_secret', 'x-request-id': 'r2', 'user-agent': 'tester/1' },
    });
    await fetch(`${other.url}/healthz`);
    await other.app.close();
    expect(other.observations.filter(({ name }) => name === 'http.request')).toEqual([
      {
        name: 'http.request',
        action: 'auth.me',
        origin: { surface: 'http', sourceIp: '127.0.0.1', requestId: 'r2', userAgent: 'tester/1' },
        outcome: { status: 'error', httpStatus: 401, sqlstate: '28P01', durationMs: expect.any(Number) },
      },
    ]);
  });
});

describe('health', () => {
  it('/readyz is 503 while Postgres does not answer', async () => {
    const other = await openDoor({ ready: () => Promise.reject(new ServiceError('not_ready', 'down')) });
    const reply = await fetch(`${other.url}/readyz`);
    expect([reply.status, reply.headers.get('retry-after')]).toEqual([503, '5']);
    expect((await fetch(`${other.url}/healthz`)).status).toBe(200);
    await other.app.close();
  });

  it('/readyz is 200 while it does', async () => {
    const reply = await fetch(`${door.url}/readyz`);
    expect([reply.status, await reply.json()]).toEqual([200, { status: 'ready' }]);
  });
});

describe('slow and broken clients', () => {
  it.each([
    ['headers that never end', 'POST /api/auth/signup HTTP/1.1\r\nHost: localhost\r\n'],
    [
      'a body that never ends',
      'POST /api/auth/signup HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{',
    ],
  ])('%s: 408, and the connection is closed', async (_name, bytes) => {
    const other = await openDoor({
      deadlines: { headersTimeoutMs: 150, requestTimeoutMs: 300, keepAliveTimeoutMs: 5_000, sendTimeoutMs: 5_000 },
    });
    const answer = await talk(other.port, bytes).reply;
    expect(answer).toMatch(/^HTTP\/1\.1 408 Request Timeout\r\n/);
    expect(JSON.parse(answer.split('\r\n\r\n')[1] ?? '')).toMatchObject({ status: 408, code: 'request_timeout' });
    await other.app.close();
  });

  it.each([
    ['bytes that are no HTTP', '\x16\x03\x01\x02\x00\x01\r\n\r\n', 400, 'malformed_request'],
    ['headers of 20 kB', `GET / HTTP/1.1\r\nHost: localhost\r\nX: ${'x'.repeat(20_000)}\r\n\r\n`, 431, 'headers_too_large'],
    [
      'two lengths',
      'POST /api/query HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabc',
      400,
      'malformed_request',
    ],
    [
      'length and chunks',
      'POST /api/query HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\nabc',
      400,
      'malformed_request',
    ],
  ])('%s: refused', async (_name, bytes, status, code) => {
    const answer = await talk(door.port, bytes).reply;
    expect(answer).toMatch(new RegExp(`^HTTP/1\\.1 ${status} `));
    expect(JSON.parse(answer.split('\r\n\r\n')[1] ?? '')).toMatchObject({ status, code });
  });

  it('a client that goes away in the middle of its body harms nobody', async () => {
    const socket = connect(door.port, '127.0.0.1');
    await once(socket, 'connect');
    socket.write('POST /api/auth/signup HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{');
    socket.destroy();
    await once(socket, 'close');
    expect((await fetch(`${door.url}/healthz`)).status).toBe(200);
    expect(door.observations.filter(({ name }) => name === 'service.failure')).toEqual([]);
  });
});

describe('closing', () => {
  it('lets the request under way finish, closes its connection, and waits for no idle one', async () => {
    let started = () => {};
    let finish = () => {};
    const busy = new Promise<void>((resolve) => {
      started = resolve;
    });
    const other = await openDoor({
      ready: () => {
        started();
        return new Promise((resolve) => {
          finish = resolve;
        });
      },
    });
    const silent = talk(other.port);
    const idle = talk(other.port, 'GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n');
    await once(idle.socket, 'data');
    const working = talk(other.port, 'GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n');
    await busy;

    const closed = other.app.close();
    await Promise.all([silent.reply, idle.reply]);
    finish();
    const answer = await working.reply;
    await closed;
    expect(answer).toMatch(/^HTTP\/1\.1 200 OK\r\n/);
    expect(answer).toMatch(/\r\nconnection: close\r\n/i);
    expect(answer).toContain('{"status":"ready"}');
  });
});

describe('with a certificate', () => {
  it('the door speaks TLS', async () => {
    const other = await openDoor({ tls: { cert: CERTIFICATE, key: CERTIFICATE_KEY } });
    const reply = await new Promise<IncomingMessage>((resolve, reject) => {
      get({ host: 'localhost', port: other.port, path: '/healthz', ca: CERTIFICATE, agent: false }, resolve).on('error', reject);
    });
    expect(reply.statusCode).toBe(200);
    reply.resume();
    await once(reply, 'close');
    await other.app.close();
  });
});
