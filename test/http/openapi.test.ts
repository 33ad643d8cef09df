import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { endpointsOf } from '../../http/app.ts';
import type { OpenApiDocument } from '../../http/docs/openapi.ts';
import { ERRORS } from '../../http/errors.ts';
import { problem } from '../../http/responses/reply-schemas.ts';
import { noBody } from '../../http/routes/request-schemas.ts';
import { type Door, openDoor, standIn } from './door.ts';

let door: Door;
let document: OpenApiDocument;
beforeAll(async () => {
  door = await openDoor();
  document = (await (await fetch(`${door.url}/api/openapi.json`)).json()) as OpenApiDocument;
});
afterAll(() => door.app.close());

const operations = () => Object.values(document.paths).flatMap((methods) => Object.values(methods));

describe('the OpenAPI document', () => {
  it('describes every call', () => {
    expect(document.openapi).toBe('3.1.0');
    expect(Object.entries(document.paths).map(([path, methods]) => [path, Object.keys(methods)])).toEqual([
      ['/api/auth/signup', ['post']],
      ['/api/auth/me', ['get']],
      ['/api/auth/rotate-key', ['post']],
      ['/api/query', ['post']],
      ['/api/transaction', ['post']],
      ['/api/migrations', ['post', 'get']],
      ['/api/audit', ['get', 'post']],
      ['/api/audit/verify', ['get']],
    ]);
  });

  it('refuses unknown fields, as the validator does', () => {
    const bodies = operations().filter(({ requestBody }) => requestBody !== undefined);
    const strictness = bodies.map(({ requestBody }) => requestBody?.content['application/json']?.schema.additionalProperties);
    expect(strictness).toEqual(bodies.map(() => false));
  });

  it('asks for a key everywhere but at sign-up', () => {
    const open = operations().filter(({ security }) => security.length === 0);
    expect(open.map(({ operationId }) => operationId)).toEqual(['auth.signup']);
  });

  it('names every error of every call with an example that is a problem document', () => {
    for (const { responses } of operations()) {
      const problems = Object.entries(responses).flatMap(([status, { content }]) =>
        Object.entries(content['application/problem+json']?.examples ?? {}).map(([code, { value }]) => ({ status, code, value })),
      );
      expect(problems.map(({ code }) => code)).toEqual(expect.arrayContaining(['invalid_request', 'internal']));
      for (const { status, code, value } of problems) {
        expect(problem.strict().parse(value)).toMatchObject({ status: Number(status), code });
        expect(document['x-errors']).toHaveProperty(code);
      }
    }
  });
  it("leaves out only what comes from elsewhere: the wire door, Neon's, and clients that are gone", () => {
    const elsewhere = Object.keys(ERRORS).filter((code) => !(code in document['x-errors']));
    expect(elsewhere.sort()).toEqual([
      'idle_in_transaction_timeout',
      'not_acceptable',
      'not_allowed',
      'protocol_violation',
      'query_canceled',
      'too_many_login_failures',
      'unknown_database',
      'unsupported_protocol',
    ]);
  });

  it('shows the headers that calls understand and replies have', () => {
    const headers = operations().map(({ operationId, parameters = [], responses }) => [
      operationId,
      parameters.filter((parameter) => parameter.in === 'header').map(({ name }) => name),
      [...new Set(Object.values(responses).flatMap((reply) => Object.keys(reply.headers ?? {})))],
    ]);
    expect(headers.filter(([, asked, given]) => asked?.length || given?.length)).toEqual([
      ['auth.signup', [], ['RateLimit-Policy', 'RateLimit']],
      ['query', ['Idempotency-Key'], ['Idempotency-Replayed']],
      ['transaction', ['Idempotency-Key'], ['Idempotency-Replayed']],
      ['migrations.apply', ['Idempotency-Key'], ['Idempotency-Replayed']],
    ]);
  });
});

describe('the examples', () => {
  it.each(endpointsOf(standIn()).map(({ operation }) => [operation.action, operation] as const))(
    'of %s are true to its schemas',
    (_name, operation) => {
      if (operation.body !== noBody && operation.bodyExample !== undefined) operation.body.parse(operation.bodyExample);
      for (const { schema, example, lines } of Object.values(operation.replies)) {
        expect(schema.parse(example)).toEqual(example);
        for (const line of lines?.example ?? []) expect(lines?.schema.parse(line)).toEqual(line);
      }
    },
  );
});

describe('the page for people', () => {
  it('shows every call and error, and needs nothing from the network', async () => {
    const reply = await fetch(`${door.url}/docs`);
    const page = await reply.text();
    expect(reply.headers.get('content-type')).toBe('text/html; charset=utf-8');
    for (const { operationId } of operations()) expect(page).toContain(`id="${operationId}"`);
    for (const code of Object.keys(document['x-errors'])) expect(page).toContain(`id="error-${code}"`);
    expect(page).not.toMatch(/<script|<link|<img|src=|@import|url\(/);
  });

  it('links to the reference texts, which link to each other', async () => {
    const page = await (await fetch(`${door.url}/docs`)).text();
    const paths = [...page.matchAll(/<a href="(\/docs\/\w+)">/g)].map(([, path = '']) => path);
    expect(paths).toEqual(['start', 'http', 'wire', 'organizations', 'operating', 'benchmarks'].map((name) => `/docs/${name}`));
    for (const path of paths) {
      const reply = await fetch(door.url + path);
      expect([reply.status, reply.headers.get('content-type')]).toEqual([200, 'text/markdown; charset=utf-8']);
      const text = await reply.text();
      expect(text).toMatch(/^# \w/);
      for (const [, linked = ''] of text.matchAll(/\]\((\/docs\/\w+)/g)) expect(paths).toContain(linked);
      const elsewhere = [...text.matchAll(/\]\((?!\/docs\/|#|https:)([^)#]+)/g)].map(([, file]) => file);
      expect(
        elsewhere.filter((file) => !/^(?:LICENSE|(?:\.\.\/)*CONTRIBUTING\.md|test\/conversations\/README\.md)$/.test(file ?? '')),
      ).toEqual([]);
    }
  });

  it('is where the root leads', async () => {
    const reply = await fetch(door.url, { redirect: 'manual' });
    expect([reply.status, reply.headers.get('location')]).toEqual([302, '/docs']);
  });

  it('shows what is written in it as text', async () => {
    const page = await (await fetch(`${door.url}/docs`)).text();
    expect(page).toContain('where $1 &gt; 0');
  });
});
