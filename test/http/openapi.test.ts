import { createHash } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { documentedOperations, endpointsOf } from '../../http/app.ts';
import { ERROR_HELP } from '../../http/docs/error-help.ts';
import { inlined, type OpenApiDocument } from '../../http/docs/openapi.ts';
import { SCRIPT } from '../../http/docs/page-script.ts';
import { ERRORS } from '../../http/errors.ts';
import { problem } from '../../http/reply-schemas.ts';
import { noBody } from '../../http/request-schemas.ts';
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
      ['/api/keys', ['post', 'get']],
      ['/api/keys/{keyId}', ['patch', 'delete']],
      ['/api/keys/{keyId}/rotate', ['post']],
      ['/api/clones', ['post', 'get']],
      ['/api/clones/{organizationId}', ['delete']],
      ['/api/organization', ['patch', 'delete']],
      ['/api/query', ['post']],
      ['/api/transaction', ['post']],
      ['/api/migrations', ['post', 'get']],
      ['/api/migrations/{name}/rollback', ['post']],
      ['/api/schema', ['get']],
      ['/api/queries', ['get']],
      ['/api/queries/{name}', ['put', 'get', 'delete']],
      ['/api/usage', ['get']],
      ['/api/insights/queries', ['get']],
      ['/api/insights/advice', ['get']],
      ['/api/sessions', ['get']],
      ['/api/sessions/{sessionId}/cancel', ['post']],
      ['/api/sessions/{sessionId}', ['delete']],
      ['/api/audit', ['get', 'post']],
      ['/api/audit/verify', ['get']],
      ['/sql', ['post']],
      ['/healthz', ['get']],
      ['/readyz', ['get']],
    ]);
  });

  it('names every request and reply, and what is inside of several', () => {
    const content = operations().flatMap(({ requestBody, responses }) => [
      ...Object.values(requestBody?.content ?? {}),
      ...Object.values(responses).flatMap((reply) => Object.values(reply.content)),
    ]);
    const { schemas } = document.components;
    for (const { schema } of content.filter((media) => media.schema.type !== 'string'))
      expect(Object.keys(schemas)).toContain(/^#\/components\/schemas\/(\w+)$/.exec(String(schema.$ref))?.[1]);
    expect(schemas.QueryResult?.properties?.fields).toEqual({ type: 'array', items: { $ref: '#/components/schemas/Field' } });
    const inside = ['Migration', 'AuditEntry', 'ApiKey', 'Warning'].filter((name) => JSON.stringify(schemas).includes(`schemas/${name}"`));
    expect(inside).toEqual(['Migration', 'AuditEntry', 'ApiKey', 'Warning']);
    expect(JSON.stringify(inlined(document))).not.toContain('$ref');
  });

  it('names operations so that each is a name of a function', () => {
    const names = operations().map(({ operationId }) => operationId);
    expect(names.filter((name) => !/^[a-z][A-Za-z]+$/.test(name))).toEqual([]);
    expect(new Set(names).size).toBe(names.length);
  });

  it('refuses unknown fields, as the validator does', () => {
    const all = Object.entries(inlined(document).paths).filter(([path]) => path !== '/sql');
    const bodies = all.flatMap(([, methods]) => Object.values(methods)).filter(({ requestBody }) => requestBody !== undefined);
    const strictness = bodies.map(({ requestBody }) => requestBody?.content['application/json']?.schema.additionalProperties);
    expect(strictness).toEqual(bodies.map(() => false));
  });

  it('asks for a key everywhere but at sign-up and for health', () => {
    const open = operations().filter(({ security }) => security.length === 0);
    expect(open.map(({ operationId }) => operationId)).toEqual(['signUp', 'health', 'readiness']);
  });

  it('names every error of every call with an example that is a problem document', () => {
    for (const { responses, operationId } of operations()) {
      if (operationId === 'neonSql') continue;
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
      'idle_session_timeout',
      'not_acceptable',
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
    expect(headers.filter(([name, asked, given]) => name !== 'neonSql' && (asked?.length || given?.length))).toEqual([
      ['signUp', [], ['RateLimit-Policy', 'RateLimit']],
      ['updateOrganization', ['Idempotency-Key'], ['Idempotency-Replayed']],
      ['query', ['Idempotency-Key'], ['Idempotency-Replayed']],
      ['transaction', ['Idempotency-Key'], ['Idempotency-Replayed']],
      ['applyMigration', ['Idempotency-Key'], ['Idempotency-Replayed']],
      ['rollBackMigration', ['Idempotency-Key'], ['Idempotency-Replayed']],
      ['readSchema', ['If-None-Match'], ['ETag']],
      ['listSavedQueries', ['If-None-Match'], ['ETag']],
      ['saveQuery', ['If-Match', 'If-None-Match'], ['ETag']],
      ['readSavedQuery', ['If-None-Match'], ['ETag']],
      ['deleteSavedQuery', ['If-Match'], []],
    ]);
  });
});

describe('the examples', () => {
  it.each(documentedOperations(endpointsOf(standIn())).map((operation) => [operation.operationId, operation] as const))(
    'of %s are true to its schemas',
    (_name, operation) => {
      if (operation.body !== noBody && operation.bodyExample !== undefined) operation.body.parse(operation.bodyExample);
      for (const { schema, example, lines } of [...Object.values(operation.replies), ...Object.values(operation.ownErrors ?? {})]) {
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
    expect(page).not.toMatch(/<script[^>]|<link|<img|src=|@import|url\(/);
  });

  it('says of every error what causes it and what to do', async () => {
    const page = await (await fetch(`${door.url}/docs`)).text();
    for (const [code, { cause, cure }] of Object.entries(ERROR_HELP)) {
      expect(page).toContain(`id="error-${code}"`);
      for (const sentence of [cause, cure]) expect(sentence).toMatch(/^[A-Z].*\.$/);
    }
  });

  it('runs no script but its own, of 12 kB at most', async () => {
    const reply = await fetch(`${door.url}/docs`);
    const scripts = [...(await reply.text()).matchAll(/<script>([\s\S]*?)<\/script>/g)].map(([, script = '']) => script);
    expect(scripts).toEqual([SCRIPT]);
    expect(Buffer.byteLength(SCRIPT)).toBeLessThanOrEqual(12_000);
    const hash = createHash('sha256').update(SCRIPT).digest('base64');
    const policy = reply.headers.get('content-security-policy')?.split('; ');
    expect(policy).toEqual(expect.arrayContaining(["default-src 'none'", `script-src 'sha256-${hash}'`, "connect-src 'self'"]));
    expect(policy?.join()).not.toMatch(/unsafe|\*/);
  });

  it('has chapters, whose links lead to something', async () => {
    const pages = new Map<string, string>();
    for (const path of ['', '/start', '/http', '/wire', '/organizations', '/operating', '/benchmarks'].map((name) => `/docs${name}`)) {
      const reply = await fetch(door.url + path, { headers: { accept: 'text/html,application/xhtml+xml,*/*;q=0.8' } });
      expect(reply.headers.get('content-type')).toBe('text/html; charset=utf-8');
      pages.set(path, await reply.text());
    }
    for (const [path, page] of pages) {
      const ids = [...page.matchAll(/ id="([^"]+)"/g)].map(([, id]) => id);
      expect([path, ids.filter((id, at) => ids.indexOf(id) !== at)]).toEqual([path, []]);
      const main = page.slice(page.indexOf('<main'), page.indexOf('<script>'));
      expect(main.replace(/<pre[\s\S]*?<\/pre>|<code>[\s\S]*?<\/code>/g, '')).not.toMatch(/```|\*\*|\]\(|^\|/m);
      for (const [, target = ''] of page.matchAll(/<a href="([^"]+)"/g)) {
        const [linked = '', id] = target.split('#');
        if (target.startsWith('https:') || linked === '/api/openapi.json') continue;
        const there = pages.get(linked || path);
        expect([path, target, there !== undefined && (id === undefined || there.includes(` id="${id}"`))]).toEqual([path, target, true]);
      }
    }
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

  it('ends what a field means once', async () => {
    expect(await (await fetch(`${door.url}/docs`)).text()).not.toContain('.; ');
  });

  it('shows what is written in it as text', async () => {
    const page = await (await fetch(`${door.url}/docs`)).text();
    expect(page).toContain('where $1 &gt; 0');
  });
});
