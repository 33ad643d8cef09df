import { randomBytes } from 'node:crypto';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { endpointsOf } from '../../http/app.ts';
import { noBody } from '../../http/request-schemas.ts';
import { EXAMPLE_ORGANIZATION } from '../../http/routes/account.ts';
import { PLACEMENT, startTestService, type TestOrganization, type TestService } from '../support/service.ts';
import { standIn } from './door.ts';

let service: TestService;
let acme: TestOrganization;
const afterwards: (() => Promise<void>)[] = [];
beforeAll(async () => {
  service = await startTestService();
  acme = await service.signUp();
});
afterAll(async () => {
  for (const end of afterwards) await end();
  await service.close();
});

const operations = endpointsOf(standIn()).map(({ operation }) => operation);

/** An organization in a schema is cloned by pg_dump, which the embedded server does not bring. */
const possible = operations.filter(({ action }) => PLACEMENT === 'database' || !['clones.create', 'clones.delete'].includes(action));
/** Those that end the key come last. */
const inOrder = [...possible].sort((a, b) => Number(a.action === 'auth.rotate_key') - Number(b.action === 'auth.rotate_key'));

async function newKeyId(): Promise<string> {
  const { body } = await service.call('POST', '/api/keys', { key: acme.apiKey, body: { name: 'example', scope: 'write' } });
  return body.keyId;
}

async function newCloneId(): Promise<string> {
  const { body } = await service.call('POST', '/api/clones', { key: acme.apiKey });
  return body.organizationId;
}

async function newSessionId(): Promise<string> {
  const client = await service.connect(acme);
  // It may be ended by what is tried with it.
  afterwards.push(() => client.end().catch(() => {}));
  const { body } = await service.call('GET', '/api/sessions', { key: acme.apiKey });
  return body.sessions.find(({ door }: { door: string }) => door === 'wire').sessionId;
}

/** It can be undone. */
async function newMigrationName(key: string): Promise<string> {
  const name = `example-${randomBytes(4).toString('hex')}`;
  const body = { name, sql: `create table "${name}" (id int)`, rollbackSql: `drop table "${name}"` };
  expect((await service.call('POST', '/api/migrations', { key, body })).status).toBe(201);
  return name;
}

/** An example in which a text stands for another. */
function replaced(example: unknown, text: string, by: string): object | undefined {
  return example === undefined ? undefined : JSON.parse(JSON.stringify(example).replaceAll(text, by));
}

it.each(inOrder.map((operation) => [`${operation.method} ${operation.path}`, operation] as const))(
  'the example of %s works as shown',
  async (_name, operation) => {
    const { id, apiKey } = operation.action === 'organization.delete' ? await service.signUp('Leaver') : acme;
    const body = operation.body === noBody ? undefined : replaced(operation.bodyExample, EXAMPLE_ORGANIZATION.id, id);
    const path = operation.path
      .replace('{keyId}', operation.path.includes('{keyId}') ? await newKeyId() : '')
      .replace('{organizationId}', operation.path.includes('{organizationId}') ? await newCloneId() : '')
      .replace('{name}', operation.path.startsWith('/api/migrations/') ? await newMigrationName(apiKey) : 'totals%20by%20customer')
      .replace('{sessionId}', operation.path.includes('{sessionId}') ? await newSessionId() : '');
    const reply = await service.call(operation.method, path, {
      ...(operation.needsKey ? { key: apiKey } : {}),
      ...(body === undefined ? {} : { body }),
    });
    const described = operation.replies[reply.status];
    expect(described, `${reply.status} ${JSON.stringify(reply.body)}`).toBeDefined();
    expect(Object.keys(reply.body).sort()).toEqual(Object.keys(described?.example ?? {}).sort());
    expect(described?.schema.parse(reply.body)).toEqual(reply.body);
  },
);

it.each(operations.filter(({ headers = {} }) => 'Idempotency-Key' in headers).map((operation) => [operation.action, operation] as const))(
  'the example of %s is carried out once with a key',
  async (action, operation) => {
    const { apiKey: key } = await service.signUp('Repeater');
    // The example before has taken the address.
    const body = replaced(operation.bodyExample, 'ops@acme.test', 'repeater@acme.test');
    const path = operation.path.includes('{name}') ? operation.path.replace('{name}', await newMigrationName(key)) : operation.path;
    const send = () =>
      service.call(operation.method, path, {
        key,
        ...(body === undefined ? {} : { body }),
        headers: { 'idempotency-key': action },
      });
    const [first, second] = [await send(), await send()];
    expect(second.body).toEqual(first.body);
    expect([first.headers.get('idempotency-replayed'), second.headers.get('idempotency-replayed')]).toEqual([null, 'true']);
  },
);

it('the example query returns the example lines', async () => {
  const query = operations.find(({ action }) => action === 'query');
  const reply = await fetch(`${service.httpUrl}/api/query`, {
    method: 'POST',
    headers: {
      authorization: `Bearer ${(await service.signUp('Reader')).apiKey}`,
      'content-type': 'application/json',
      accept: 'application/x-ndjson',
    },
    body: JSON.stringify(query?.bodyExample),
  });
  const untimed = (lines: readonly unknown[]) => lines.map((line) => JSON.stringify(line).replace(/"durationMs":[\d.]+/, ''));
  const lines = (await reply.text()).trimEnd().split('\n');
  expect(untimed(lines.map((line) => JSON.parse(line)))).toEqual(untimed(query?.replies[200]?.lines?.example ?? []));
});

it('the example query returns the example result', async () => {
  const query = operations.find(({ action }) => action === 'query');
  const { id, apiKey } = await service.signUp('Reader');
  const { body } = await service.call('POST', '/api/query', { key: apiKey, body: query?.bodyExample });
  expect(id).not.toBe(acme.id);
  expect({ ...body, durationMs: 0 }).toEqual({ ...(query?.replies[200]?.example as object), durationMs: 0 });
});
