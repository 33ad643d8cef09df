import { mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest';
import { runMigrate } from '../../src/client/migrate.ts';
import { runTypes } from '../../src/client/types.ts';
import { makeScratch, type Scratch } from '../support/scratch.ts';
import { startTestService, type TestOrganization, type TestService } from '../support/service.ts';

/* The commands for developers of an application, against a service that runs elsewhere. */

let service: TestService;
let scratch: Scratch;
let organization: TestOrganization;
beforeAll(async () => {
  service = await startTestService();
  scratch = await makeScratch();
});
afterAll(async () => {
  await service.close();
  await scratch.remove();
});
beforeEach(async () => {
  organization = await service.signUp();
});

interface Said {
  readonly code: number;
  readonly out: string;
  readonly err: string;
}

async function said(command: typeof runMigrate, ...words: readonly string[]): Promise<Said> {
  const [out, err]: [string[], string[]] = [[], []];
  vi.spyOn(process.stdout, 'write').mockImplementation((text) => out.push(String(text)) > 0);
  vi.spyOn(process.stderr, 'write').mockImplementation((text) => err.push(String(text)) > 0);
  try {
    const code = await command(words, { API_URL: service.httpUrl, API_KEY: organization.apiKey });
    return { code, out: out.join('').replace(/\d+ ms/g, 'N ms'), err: err.join('') };
  } finally {
    vi.restoreAllMocks();
  }
}

const rows = async (sql: string) => (await service.query(organization, sql)).body.rows;

describe('postern migrate', () => {
  let folder: string;
  beforeEach(async () => {
    folder = join(scratch.path, 'migrations');
    await rm(folder, { recursive: true, force: true });
    await mkdir(folder);
  });
  const put = (name: string, sql: string) => writeFile(join(folder, name), sql);
  const migrate = (...words: readonly string[]) => said(runMigrate, folder, ...words);

  it('applies a folder in the order of its numbers, and then what is new in it', async () => {
    await put('10_lines.sql', 'create table lines (o int references orders);\n-- no semicolon, and a comment at the end');
    await put('2_orders.sql', 'create table orders (id int primary key);\ninsert into orders values (1)');
    await put('2_orders.down.sql', 'drop table orders');
    await put('notes.txt', 'not SQL');
    expect(await migrate()).toEqual({
      code: 0,
      out: 'applied 2_orders (2 statements, N ms)\napplied 10_lines (1 statement, N ms)\n',
      err: '',
    });
    expect(await migrate()).toEqual({ code: 0, out: 'nothing to do\n', err: '' });
    await put('11_index.sql', '-- transaction: false\ncreate index concurrently on lines (o)');
    expect(await migrate()).toMatchObject({ code: 0, out: 'applied 11_index (1 statement, N ms)\n' });
    const { body } = await service.call('GET', '/api/migrations', { key: organization.apiKey });
    expect(body.migrations.map(({ name }: { name: string }) => name)).toEqual(['2_orders', '10_lines', '11_index']);
    expect(await rows('select * from lines')).toEqual([]);
  });

  it('stops at the one that fails, with its line, and leaves nothing of it', async () => {
    await put('1_a.sql', 'create table a (i int)');
    await put('2_b.sql', 'create table b (i int);\n\nselect * from nowhere;');
    await put('3_c.sql', 'create table c (i int)');
    const { code, out, err } = await migrate();
    expect([code, out]).toEqual([1, 'applied 1_a (1 statement, N ms)\n']);
    expect(err).toMatch(/^failed: 2_b\.sql:3: relation "nowhere" does not exist \(42P01\)\n/);
    expect(await rows("select to_regclass('b') as b, to_regclass('c') as c")).toEqual([{ b: null, c: null }]);
  });

  it('refuses one whose text has changed since', async () => {
    await put('1_a.sql', 'create table a (i int)');
    await migrate();
    await put('1_a.sql', 'create table a (i bigint)');
    for (const words of [[], ['--dry-run']]) {
      const { code, err } = await migrate(...words);
      expect(code).toBe(1);
      expect(err).toMatch(/^failed: 1_a\.sql: /);
    }
  });

  it('--dry-run tries all together, each behind what it needs, and applies none', async () => {
    await put('1_a.sql', 'create table a (i int)');
    await put('1_a.down.sql', 'drop table a');
    await put('2_b.sql', 'create table b (i int);\ndrop table a');
    await put('3_c.sql', '-- transaction: false\ncreate index concurrently on b (i)');
    await put('4_d.sql', 'create table d (i int)');
    const { code, out, err } = await migrate('--dry-run');
    expect([code, out]).toEqual([
      0,
      'would apply 1_a\nwould apply 2_b\nnot tried: 3_c, which runs without a transaction\nnot tried: 4_d, which comes behind one without a transaction\n',
    ]);
    expect(err).toMatch(/^warning: 2_b\.sql:2: /);
    expect(await rows("select to_regclass('a') as a, to_regclass('b') as b")).toEqual([{ a: null, b: null }]);
    await put('2_b.sql', 'create table b (i int);\n\nselect * from c');
    expect(await migrate('--dry-run')).toMatchObject({
      code: 1,
      out: '',
      err: expect.stringMatching(/^failed: 2_b\.sql:3: relation "c" does not/),
    });
  });

  it.each([
    [{ 'a.sql': 'select 1' }, 'a.sql: its name must begin with a number, as 001_orders.sql'],
    [{ '1_a.sql': 'select 1', '01_b.sql': 'select 1' }, '1_a.sql: another migration has the same number'],
    [{ '1_a.sql': 'select 1', '2_b.down.sql': 'select 1' }, '2_b.down.sql: there is no migration that it undoes'],
    [{}, 'there is no migration in '],
  ])('does not begin with a folder of %j', async (files, message) => {
    for (const [name, sql] of Object.entries(files)) await put(name, sql);
    const { code, out, err } = await migrate();
    expect([code, out]).toEqual([2, '']);
    expect(err).toContain(message);
  });

  it('says what it lacks: a folder, a key, a service', async () => {
    await put('1_a.sql', 'select 1');
    expect(await said(runMigrate, join(scratch.path, 'nowhere'))).toMatchObject({ code: 2, err: expect.stringContaining('no such file') });
    expect(await said(runMigrate, folder, '--now')).toMatchObject({ code: 2, err: expect.stringContaining('usage: postern migrate') });
    organization = { ...organization, apiKey: 'pst_wrong' };
    expect(await migrate()).toMatchObject({ code: 2, err: expect.stringMatching(/^postern: .*key/) });
    const write = vi.spyOn(process.stderr, 'write').mockReturnValue(true);
    expect(await runMigrate([folder], { API_URL: 'http://127.0.0.1:1', API_KEY: 'k' })).toBe(2);
    expect(write.mock.lastCall?.[0]).toMatch(/^postern: http:\/\/127\.0\.0\.1:1 does not answer: /);
  });
});

describe('postern types', () => {
  const MADE = [
    "create type mood as enum ('sad', 'it''s \"ok\"')",
    'create domain "E ""x"" DEFAULT" as int default 1',
    'create domain "E-mail" as character varying(200) not null check (value like \'%@%\')',
    `create table "order lines" (
       id bigint generated always as identity primary key, n int not null default 1, at timestamptz(3) not null default now(), m mood, ms mood[],
       mail "E-mail", odd "E ""x"" DEFAULT", price numeric(10,2), prices numeric(10,2)[], ok boolean not null, j jsonb, ns int[] not null, "a-b" text,
       twice int generated always as (n * 2) stored, d date, b bytea, i interval day to second(3))`,
    'comment on table "order lines" is \'What was */ ordered\'',
    'create view totals as select count(*) as n from "order lines"',
  ];
  beforeEach(async () => {
    for (const sql of MADE) expect((await service.query(organization, sql)).status).toBe(200);
  });

  it('writes rows as /api/query returns them', async () => {
    const { code, out, err } = await said(runTypes);
    expect([code, err]).toEqual([0, '']);
    expect(out).toContain('export type Json = ');
    expect(out).toContain(`export type Mood = "sad" | "it's \\"ok\\"";\n`);
    expect(out).toContain(`/** What was *\\/ ordered */
export interface OrderLines {
  id: string;
  n: number;
  at: string;
  m: Mood | null;
  ms: Mood[] | null;
  mail: string | null;
  odd: number | null;
  price: string | null;
  prices: string[] | null;
  ok: boolean;
  j: Json | null;
  ns: number[];
  "a-b": string | null;
  twice: number | null;
  d: string | null;
  b: string | null;
  i: string | null;
}
`);
    expect(out).toContain('export interface Totals {\n  n: string | null;\n}\n');
  });

  it('--kysely writes what its driver reads and takes, into a file', async () => {
    const file = join(scratch.path, 'db.ts');
    expect(await said(runTypes, '--kysely', '--out', file)).toEqual({ code: 0, out: '', err: '' });
    const written = await readFile(file, 'utf8');
    expect(written).toContain("import type { ColumnType, Generated, GeneratedAlways } from 'kysely';\n");
    expect(written).toContain(`export interface OrderLines {
  id: GeneratedAlways<string>;
  n: Generated<number>;
  at: ColumnType<Date, Date | string | undefined, Date | string>;
  m: Mood | null;
  ms: string | null;
  mail: string | null;
  odd: number | null;
  price: string | null;
  prices: number[] | null;
  ok: boolean;
  j: Json | null;
  ns: number[];
  "a-b": string | null;
  twice: GeneratedAlways<number | null>;
  d: ColumnType<Date | null, Date | string | null | undefined, Date | string | null>;
  b: Buffer | null;
  i: ColumnType<{ toPostgres(): string } | null, string | null | undefined, string | null>;
}
`);
    expect(written).toContain('export interface DB {\n  "order lines": OrderLines;\n  totals: Totals;\n}\n');
  });

  it('says what is not there', async () => {
    expect(await said(runTypes, '--schema', 'nowhere')).toMatchObject({
      code: 2,
      err: expect.stringContaining('there is no schema "nowhere"'),
    });
    expect(await said(runTypes, 'extra')).toMatchObject({ code: 2, err: expect.stringContaining('usage: postern types') });
  });
});
