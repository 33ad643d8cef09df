import type { Client } from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { FileParts, ImportError, ImportRun, type PartLimits } from '../../../http/console/screens/tables/import.ts';
import { withoutModifier } from '../../../http/console/screens/tables/sql.ts';
import { PLACEMENTS, startTestService, type TestOrganization, type TestService } from '../../support/service.ts';
import { HOSTILE } from '../support/hostile.ts';
import { HOSTILE_NAME } from './kinds.ts';
import { browseOf, callAs, tableNamed } from './opened.ts';

const TABLES = `
  CREATE TYPE mood AS ENUM ('sad', 'ok');
  CREATE DOMAIN short AS varchar(3) CHECK (VALUE <> 'no');
  CREATE TABLE goods (id int PRIMARY KEY, v3 varchar(3), c3 char(3), b3 bit(3), n numeric(5,2), ts timestamp(0) with time zone, iv interval day to second,
    tags text[], grid int[], codes varchar(3)[], jb jsonb, js json, m mood, moods mood[], s short, bin bytea, big bigint, flag boolean DEFAULT true);
  CREATE TABLE ${HOSTILE_NAME} (${HOSTILE_NAME} text, "$1" text);
  CREATE TABLE numbered (id int PRIMARY KEY, n int NOT NULL CHECK (n >= 0));`;

const LIMITS: PartLimits = { records: 1_000_000, values: 1_000_000, characters: 10_000_000 };

describe.each(PLACEMENTS)('in the %s placement', (placement) => {
  let service: TestService;
  let organization: TestOrganization;
  let client: Client;
  beforeAll(async () => {
    service = await startTestService({ POSTERN_PLACEMENT: placement });
    organization = await service.signUp();
    client = await service.connect(organization);
    await client.query(TABLES);
    callAs(service, organization);
  });
  afterAll(async () => {
    await client.end();
    await service.close();
  });

  /** @returns how many rows are stored, with what went wrong */
  const importInto = async (name: string, csv: string, limits = LIMITS) => {
    const table = await tableNamed(name);
    const { columns } = browseOf(table);
    const parts = await FileParts.open(new Blob([csv]), limits);
    const header = (await parts.takeFirst())?.fields ?? [];
    const targets = header.map((field, index) => {
      const column = columns.find((one) => one.name === field);
      if (column === undefined) throw new Error(`there is no column ${field}`);
      return { field: index, column };
    });
    const plan = { table, targets, fieldCount: header.length, timeoutMs: 30_000 };
    const run = new ImportRun(plan, await parts.next(), parts);
    const steps: number[] = [];
    const error = await run.go(({ rows }) => steps.push(rows), new AbortController().signal).catch((thrown) => thrown);
    return { rows: run.rows, steps, error };
  };

  it('values of every kind become what PostgreSQL reads in them', async () => {
    const csv = `id,v3,c3,b3,n,ts,iv,tags,grid,codes,jb,js,m,moods,s,bin,big
1,abc,a,101,1.234,2025-01-31 09:30:00.6Z,1 day 2:03,"{a,NULL,""""""NULL""""""}","{{1,2},{3,4}}",{abc},"{""a"": 1.0}","{""a"" :  1}",ok,"{ok,sad}",x,\\x00ff,9223372036854775807
2,"",,,,,,{},,,null,"""text""",,,"",,`.replace('""""""NULL""""""', '""NULL""');
    expect(await importInto('goods', csv)).toEqual({ rows: 2, steps: [2], error: undefined });
    const { rows } = await client.query('SELECT g::text FROM goods g ORDER BY id');
    expect(rows.map(({ g }) => g)).toEqual([
      '(1,abc,"a  ",101,1.23,"2025-01-31 09:30:01+00","1 day 02:03:00","{a,NULL,""NULL""}","{{1,2},{3,4}}",{abc},"{""a"": 1.0}","{""a"" :  1}",ok,"{ok,sad}",x,"\\\\x00ff",9223372036854775807,t)',
      '(2,"",,,,,,{},,,null,"""text""",,,"",,,t)',
    ]);
  });

  it.each([
    ['v3', 'abcd', 'Value too long for type character varying(3).'],
    ['c3', 'abcd', 'Value too long for type character(3).'],
    ['b3', '1010', 'Bit string length 4 does not match type bit(3).'],
    ['s', 'abcd', 'Value too long for type character varying(3).'],
    ['s', 'no', 'Value for domain short violates check constraint "short_check".'],
    ['big', 'x', 'Invalid input syntax for type bigint: "x".'],
  ])('a value that does not fit into %s is refused with its line', async (column, text, message) => {
    const { rows, error } = await importInto('goods', `id,${column}\n11,\n12,\n"13"\n`.replace('"13"', `13,${text}`));
    expect(error).toBeInstanceOf(ImportError);
    expect(error).toMatchObject({ message, lines: [4, 4] });
    expect(rows).toBe(0);
    expect((await client.query('SELECT id FROM goods WHERE id > 10')).rows).toEqual([]);
  });

  it('the line of a bad row is found among thousands, and nothing is stored', async () => {
    const lines = Array.from({ length: 2_500 }, (_, index) => `${index},${index === 1_777 ? -1 : index}`);
    const { rows, error } = await importInto('numbered', `id,n\n${lines.join('\n')}`);
    expect(error).toMatchObject({ lines: [1_779, 1_779] });
    expect(error.message).toContain('violates check constraint');
    expect(rows).toBe(0);
    expect((await client.query('SELECT count(*) FROM numbered')).rows).toEqual([{ count: '0' }]);
  });

  it('a row that fails only with those before it is found within some lines', async () => {
    const lines = Array.from({ length: 1_200 }, (_, index) => `${index === 1_100 ? 5 : index},1`);
    const { error } = await importInto('numbered', `id,n\n${lines.join('\n')}`);
    expect(error).toMatchObject({ lines: [1_002, 1_201] });
    expect(error.message).toContain('Duplicate key value');
  });

  it('a large file is several transactions, and it is said how far it came', async () => {
    const lines = Array.from({ length: 100 }, (_, index) => `${index},${index === 75 ? 'x' : 1}`);
    const { rows, steps, error } = await importInto('numbered', `id,n\n${lines.join('\n')}`, { ...LIMITS, records: 30 });
    expect({ rows, steps }).toEqual({ rows: 60, steps: [30, 60] });
    expect(error).toMatchObject({ lines: [77, 77] });
    expect((await client.query('SELECT count(*), max(id) FROM numbered')).rows).toEqual([{ count: '60', max: 59 }]);
  });

  it('a record with other fields is refused with its line', async () => {
    const { error } = await importInto(HOSTILE, `"${HOSTILE.replaceAll('"', '""')}",$1\na,b\n"c\nd"\n`);
    expect(error).toMatchObject({ lines: [3, 3], message: 'The record has 1 fields, and the first one 2.' });
  });

  it('names are quoted', async () => {
    const { error } = await importInto(HOSTILE, `"${HOSTILE.replaceAll('"', '""')}",$1\n"$1",'; drop table goods; --\n`);
    expect(error).toBeUndefined();
    expect((await client.query(`TABLE ${HOSTILE_NAME}`)).rows).toEqual([{ [HOSTILE]: '$1', $1: "'; drop table goods; --" }]);
  });
});

it('types lose what limits their length', () => {
  const types = [
    ['character varying(3)', 'character varying'],
    ['character(3)[]', 'bpchar[]'],
    ['bit(3)', 'pg_catalog."bit"'],
    ['bit varying(3)', 'bit varying'],
    ['numeric(10,2)', 'numeric'],
    ['timestamp(3) with time zone', 'timestamp with time zone'],
    ['interval day to second(3)', 'interval'],
    ['public.geometry(Point,4326)', 'public.geometry'],
    ['public."a(1)"', 'public."a(1)"'],
    ['public."a(1)"[]', 'public."a(1)"[]'],
    ['text', 'text'],
  ] as const;
  for (const [type, expected] of types) expect(withoutModifier(type)).toBe(expected);
});
