import { execFile } from 'node:child_process';
import { symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import openapiTS, { astToString } from 'openapi-typescript';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { kyselyTypes, rowTypes } from '../../src/client/types.ts';
import { REPOSITORY } from '../support/documents.ts';
import { makeScratch, type Scratch } from '../support/scratch.ts';
import { startTestService, type TestService } from '../support/service.ts';

/** What somebody writes with types from the document. Each `@ts-expect-error` is a mistake that the types must find. */
const PROGRAM = `
import createClient from 'openapi-fetch';
import type { components, operations, paths } from './api.ts';

type Schemas = components['schemas'];
type Body<Name extends keyof operations> = operations[Name] extends { requestBody: { content: { 'application/json': infer Of } } } ? Of : never;

const api = createClient<paths, 'application/json' | 'application/problem+json'>({ baseUrl: process.env.URL ?? '' });
const { data: org, error: refused } = await api.POST('/api/auth/signup', { body: { orgName: 'Acme', email: 'typed@acme.test' } });
if (org === undefined) throw new Error((refused satisfies Schemas['Problem']).message);
const { organizationId, keyId, connectionString }: { organizationId: string; keyId: string; connectionString: string } = org;
const headers = { authorization: \`Bearer \${org.apiKey}\` };

const wanted: Schemas['QueryRequest'] = { sql: 'select $1::int as n', params: [42] };
const asked: Body<'query'> = wanted;
const { data: result } = await api.POST('/api/query', { headers, body: asked });
const first: Schemas['Field'] | undefined = result?.fields[0];

const name: NonNullable<Schemas['MigrationRequest']['name']> = 'first';
const { data: migrated } = await api.POST('/api/migrations', { headers, body: { name, sql: 'create table t (a int)' } });
const migration: Schemas['Migration'] | undefined = migrated?.migration;

const { data: me } = await api.GET('/api/auth/me', { headers });
const key: Schemas['ApiKey'] | undefined = me?.key;

const { data: audit } = await api.GET('/api/audit', { headers, params: { query: { limit: 5, outcome: 'ok' } } });
const entries: Schemas['AuditEntry'][] = audit?.data ?? [];

const { data: health } = await api.GET('/healthz');
const { data: neon } = await api.POST('/sql', { headers, body: { query: 'select $1::int as n', params: ['7'] } });
const { error: failed } = await api.POST('/api/transaction', { headers, body: { statements: [{ sql: 'selec' }] } });
const problem: Schemas['Problem'] | undefined = failed;

// @ts-expect-error the text of a statement is called sql
await api.POST('/api/query', { headers, body: { query: 'select 1' } });
// @ts-expect-error no such path
await api.GET('/api/querys', { headers });
// @ts-expect-error neither ok nor error
await api.GET('/api/audit', { headers, params: { query: { outcome: 'fine' } } });

console.log(JSON.stringify({
  names: [connectionString.includes(organizationId), keyId === key?.keyId],
  rows: result?.rows, first: first?.dataType, migration: migration?.status, entries: Array.isArray(entries),
  health: health?.status, neon: neon !== undefined && 'rows' in neon && neon.rows, problem: [problem?.code, problem?.statementIndex],
}));
`;

/** What somebody writes with the types of an organization's tables. */
const PROGRAM_WITH_TABLES = `
import { Kysely, PostgresDialect } from 'kysely';
import type { DB } from './kysely.ts';
import type { Mood, Notes } from './rows.ts';

const db = new Kysely<DB>({ dialect: new PostgresDialect({ pool: {} as never }) });
const query = db.insertInto('notes').values({ body: 'a', mood: 'sad' });
db.selectFrom('app.entries').select('id');
const row: Notes = { id: '1', body: 'a', at: '2025-01-31T09:30:00Z', mood: null, tags: ['a'] };
const mood: Mood = 'sad';

// @ts-expect-error body is not null
db.insertInto('notes').values({ mood: 'sad' });
// @ts-expect-error the server makes it
db.insertInto('notes').values({ body: 'a', id: '1' });
// @ts-expect-error no such label
const wrong: Mood = 'glad';
console.log(query.compile().sql, row.id, mood, wrong);
`;
const TABLES_FOR_IT = [
  "create type mood as enum ('sad', 'ok')",
  'create table notes (id bigint generated always as identity, body text not null, at timestamptz not null default now(), mood mood, tags text[] not null default array[]::text[])',
  'create schema app',
  'create table app.entries (id int)',
];

const CONFIG = {
  extends: join(REPOSITORY, 'tsconfig.json'),
  compilerOptions: { noEmit: false, outDir: 'out', rootDir: '.', lib: ['es2023', 'dom'], typeRoots: ['node_modules/@types'] },
  include: ['*.ts'],
  exclude: [],
};

let service: TestService;
let scratch: Scratch;
beforeAll(async () => {
  service = await startTestService();
  scratch = await makeScratch();
});
afterAll(async () => {
  await service.close();
  await scratch.remove();
});

it('the OpenAPI document makes a TypeScript client that is type-checked, and works', async () => {
  const file = (name: string, content: string) => writeFile(join(scratch.path, name), content);
  const document = JSON.stringify(await (await fetch(`${service.httpUrl}/api/openapi.json`)).json());
  await file('api.ts', astToString(await openapiTS(document, { defaultNonNullable: false })));
  await file('program.ts', PROGRAM);
  await file('package.json', '{"type":"module"}');
  await file('tsconfig.json', JSON.stringify(CONFIG));
  const organization = await service.signUp();
  for (const sql of TABLES_FOR_IT) expect((await service.query(organization, sql)).status).toBe(200);
  const { body } = await service.call('GET', '/api/schema', { key: organization.apiKey });
  await file('rows.ts', rowTypes(body));
  await file('kysely.ts', kyselyTypes(body));
  await file('tables.ts', PROGRAM_WITH_TABLES);
  await symlink(fileURLToPath(new URL('node_modules', import.meta.url)), join(scratch.path, 'node_modules'));

  const run = (command: string, args: readonly string[]) =>
    promisify(execFile)(command, args, { cwd: scratch.path, env: { ...process.env, URL: service.httpUrl } });
  const checked = await run(join(REPOSITORY, 'node_modules/.bin/tsc'), ['-p', '.']).catch(({ stdout }) => ({ stdout }));
  expect(checked.stdout).toBe('');
  const { stdout } = await run(process.execPath, ['out/program.js']);
  expect(JSON.parse(stdout)).toEqual({
    names: [true, true],
    rows: [{ n: 42 }],
    first: 'int4',
    migration: 'applied',
    entries: true,
    health: 'ok',
    neon: [{ n: 7 }],
    problem: ['sql_error', 0],
  });
});
