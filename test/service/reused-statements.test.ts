import type pg from 'pg';
import { beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { PLACEMENTS, startTestService, type TestOrganization, type TestService } from '../support/service.ts';

/** Often enough that a text is prepared on a backend at either door, and runs there. */
const OFTEN = 5;

/** Literals that are the present moment, or become it once their quotes are taken away. */
const SPELLINGS = [
  "'now'",
  "'NOW'",
  "' Now '",
  "'now()'",
  "'on now'",
  "E'now'",
  "E'n\\157w'",
  "E'\\x6e\\u006fw'",
  "U&'\\006eow'",
  "U&'!006eo!+000077' UESCAPE '!'",
  '$$now$$',
  '$a$ now $a$',
  "'no'\n'w'",
  "'n' -- not the end\n  'ow'",
  "E'n\\x6f'\n'w'",
] as const;

/** How a literal becomes a value of each type, and what it is compared with in the same statement. */
const TYPES: readonly (readonly [string, (literal: string) => string, string])[] = [
  ['a cast', (literal) => `${literal}::timestamptz`, 'now()'],
  ['CAST', (literal) => `CAST(${literal} AS timestamptz)`, 'now()'],
  ['a type before it', (literal) => `timestamptz ${literal}`, 'now()'],
  ['timestamp', (literal) => `timestamp ${literal}`, 'localtimestamp'],
  ['time', (literal) => `${literal}::time`, 'localtime'],
  ['timetz', (literal) => `${literal}::timetz`, 'current_time'],
  ['what it is compared with', (literal) => `CASE WHEN now() = ${literal} THEN now() END`, 'now()'],
  ['COALESCE', (literal) => `coalesce(${literal}, now())`, 'now()'],
  ['a domain', (literal) => `${literal}::moment`, 'now()'],
];

/** Values in which one is. */
const NESTED: readonly (readonly [string, string])[] = [
  [`('{now}'::timestamptz[])[1]`, 'now()'],
  [`('{"no\\w"}'::timestamptz[])[1]`, 'now()'],
  [`('{{epoch,n\\ow}}'::moment[])[1][2]`, 'now()'],
  [`lower('[now,infinity)'::tstzrange)`, 'now()'],
  [`lower('["now",)'::tsrange)`, 'localtimestamp'],
  [`upper('{[epoch,now)}'::tstzmultirange)`, 'now()'],
  [`('(1,n"o"w)'::happening).at`, 'now()'],
  [`('(1,"on""now")'::happening).at`, 'now()'],
  [`(('{"(1,now)"}'::happening[])[1]).at`, 'now()'],
  [`(SELECT at FROM (VALUES (1, 'now'::timestamptz)) AS v (i, at))`, 'now()'],
];

/**
 * What a plan holds by its OID: how it is made, a statement with the parameters that it is asked with, how all is made anew, and the
 * parameters of afterwards.
 */
const HELD: Readonly<Record<string, readonly [made: string, sql: string, params: unknown[], anew: string, later?: unknown[]]>> = {
  'an enum': [
    "CREATE TYPE mood AS ENUM ('low'); CREATE TABLE mt (m mood)",
    'INSERT INTO mt (m) VALUES ($1) RETURNING m',
    ['low'],
    "ALTER TABLE mt ALTER m TYPE text; DROP TYPE mood; CREATE TYPE mood AS ENUM ('high', 'low'); ALTER TABLE mt ALTER m TYPE mood USING m::mood",
  ],
  'an enum in an array': [
    "CREATE TYPE mood AS ENUM ('low'); CREATE TABLE mt (m mood[])",
    'SELECT $1::mood[] AS moods',
    ['{low}'],
    "DROP TABLE mt; DROP TYPE mood; CREATE TYPE mood AS ENUM ('high', 'low')",
    ['{high}'],
  ],
  "an enum's label": [
    "CREATE TYPE mood AS ENUM ('low')",
    "SELECT 'low'::mood AS m, $1::int AS n",
    [1],
    "DROP TYPE mood; CREATE TYPE mood AS ENUM ('high', 'low')",
  ],
  'a domain': [
    'CREATE DOMAIN small AS int CHECK (value < 10); CREATE TABLE d (s small)',
    'INSERT INTO d (s) VALUES ($1) RETURNING s',
    [1],
    'ALTER TABLE d ALTER s TYPE int; DROP DOMAIN small; CREATE DOMAIN small AS int CHECK (value < 20); ALTER TABLE d ALTER s TYPE small',
    [15],
  ],
  'a domain of another name': [
    'CREATE DOMAIN small AS int CHECK (value < 10); CREATE TABLE d (s small)',
    'INSERT INTO d (s) VALUES ($1) RETURNING s',
    [1],
    'ALTER DOMAIN small RENAME TO smaller; ALTER TABLE d ALTER s TYPE int',
    [15],
  ],
  'a row type': [
    'CREATE TYPE pair AS (a int, b int); CREATE TABLE p (c pair)',
    'INSERT INTO p (c) VALUES ($1) RETURNING c::text',
    ['(1,2)'],
    'DROP TABLE p; DROP TYPE pair; CREATE TYPE pair AS (a int, b text, c int); CREATE TABLE p (c pair)',
    ['(1,x,3)'],
  ],
  'a range type': [
    'CREATE TYPE span AS RANGE (subtype = int)',
    'SELECT $1::span::text AS s',
    ['[1,2)'],
    'DROP TYPE span; CREATE TYPE span AS RANGE (subtype = text)',
    ['[a,b)'],
  ],
  "a parameter's type": [
    'CREATE TABLE t (a int)',
    'INSERT INTO t (a) VALUES ($1) RETURNING a',
    [1],
    'ALTER TABLE t ALTER a TYPE text',
    ['x'],
  ],
  "a parameter's type, into JSON": [
    'CREATE TABLE t (a int)',
    'INSERT INTO t (a) VALUES ($1) RETURNING a',
    [1],
    'DROP TABLE t; CREATE TABLE t (a jsonb)',
    [{ a: 1 }],
  ],
  'a function': [
    "CREATE FUNCTION f(int) RETURNS int LANGUAGE sql AS 'SELECT 1'",
    'SELECT f($1)',
    [1],
    "DROP FUNCTION f(int); CREATE FUNCTION f(text) RETURNS text LANGUAGE sql AS 'SELECT $1'",
    ['x'],
  ],
  'an operator': [
    'CREATE OPERATOR ### (LEFTARG = int, RIGHTARG = int, FUNCTION = int4pl)',
    'SELECT 5 ### $1 AS n',
    [1],
    'DROP OPERATOR ### (int, int); CREATE OPERATOR ### (LEFTARG = int, RIGHTARG = int, FUNCTION = int4mi)',
  ],
  'a cast': [
    `CREATE TYPE box1 AS (n int); CREATE FUNCTION unbox(box1) RETURNS int LANGUAGE sql AS 'SELECT ($1).n'; CREATE CAST (box1 AS int) WITH FUNCTION unbox(box1)`,
    'SELECT row($1::int)::box1::int AS n',
    [1],
    `DROP CAST (box1 AS int); DROP FUNCTION unbox(box1);
     CREATE FUNCTION unbox(box1) RETURNS int LANGUAGE sql AS 'SELECT ($1).n + 1'; CREATE CAST (box1 AS int) WITH FUNCTION unbox(box1)`,
  ],
  'a collation': [
    `CREATE COLLATION c FROM "C"`,
    `SELECT $1::text COLLATE c < 'b' AS less`,
    ['a'],
    `DROP COLLATION c; CREATE COLLATION c FROM "POSIX"`,
  ],
  'a sequence': ['CREATE SEQUENCE s', "SELECT nextval('s') > 0 AS next, $1::int AS n", [1], 'DROP SEQUENCE s; CREATE SEQUENCE s START 7'],
  'a relation named by a constant': [
    'CREATE TABLE t (a int)',
    "SELECT 't'::regclass AS t, $1::int AS n",
    [1],
    'DROP TABLE t; CREATE TABLE t (a int)',
  ],
  'a configuration of text search': [
    'CREATE TEXT SEARCH CONFIGURATION words (COPY = simple)',
    "SELECT to_tsvector('words', $1) AS v",
    ['Runs'],
    'DROP TEXT SEARCH CONFIGURATION words; CREATE TEXT SEARCH CONFIGURATION words (COPY = english)',
  ],
  'a view': [
    'CREATE VIEW v AS SELECT 1 AS a',
    'SELECT * FROM v WHERE a = $1',
    [1],
    "DROP VIEW v; CREATE VIEW v AS SELECT 'x'::text AS a",
    ['x'],
  ],
  'a table and its columns': [
    'CREATE TABLE t (a int, b int)',
    'INSERT INTO t (b) VALUES ($1) RETURNING *',
    [1],
    'ALTER TABLE t RENAME b TO c; ALTER TABLE t ADD b text',
    ['x'],
  ],
};

describe.each(PLACEMENTS)('in the placement %s', (POSTERN_PLACEMENT) => {
  let service: TestService;
  let acme: TestOrganization;
  let client: pg.Client;
  let other: pg.Client;
  beforeAll(async () => {
    service = await startTestService({ POSTERN_BACKENDS_PER_TENANT: '2', POSTERN_PLACEMENT });
    return () => service.close();
  });
  beforeEach(async () => {
    acme = await service.signUp();
    client = await service.connect(acme);
    other = await service.connect(acme);
    return async () => {
      await client.end();
      await other.end();
    };
  });

  async function http(sql: string, params?: readonly unknown[], more: object = {}): Promise<Record<string, unknown>[]> {
    const { status, body } = await service.call('POST', '/api/query', { key: acme.apiKey, body: { sql, params, ...more } });
    expect({ status, body }).toMatchObject({ status: 200 });
    return body.rows;
  }

  /** Parse, Bind, Describe, Execute and Sync, without a name. */
  async function wire(text: string, values: readonly unknown[] = []): Promise<Record<string, unknown>[]> {
    const { rows } = await client.query({ text, values: [...values], queryMode: 'extended' } as pg.QueryConfig);
    return rows;
  }

  describe('a constant that is the present moment', () => {
    beforeEach(async () => {
      await client.query('CREATE DOMAIN moment AS timestamptz; CREATE TYPE happening AS (i int, at timestamptz)');
    });

    const expressions = [...TYPES.flatMap(([, write, moment]) => SPELLINGS.map((literal) => [write(literal), moment] as const)), ...NESTED];

    it('is not that of an earlier call over HTTP', async () => {
      const askOften = async ([expression, moment]: (typeof expressions)[number]) => {
        const sql = `SELECT ${expression} = ${moment} AS fresh`;
        for (let i = 0; i < OFTEN; i += 1) expect([sql, await http(sql)]).toEqual([sql, [{ fresh: true }]]);
      };
      await Promise.all(expressions.map(askOften));
      for (let i = 0; i < OFTEN; i += 1)
        expect(await http("SELECT 'now'::timestamptz = now() AS fresh", [], { readOnly: true })).toEqual([{ fresh: true }]);
    });

    it('is not that of an earlier request on the wire', async () => {
      for (const [expression, moment] of expressions) {
        const sql = `SELECT ${expression} = ${moment} AS fresh`;
        for (let i = 0; i < OFTEN; i += 1) expect([sql, await wire(sql)]).toEqual([sql, [{ fresh: true }]]);
      }
    });
  });

  /** What PostgreSQL answers to a statement that has not been prepared, because nobody has sent this text before. */
  const fresh = (ask: typeof wire, sql: string, params: readonly unknown[]) => outcome(ask(`${sql} -- fresh`, params));

  it('a statement that the client has named keeps the moment at which it was prepared', async () => {
    const ask = async () => (await client.query({ name: 'then', text: "SELECT E'n\\x6fw'::timestamptz::text AS moment" })).rows;
    const prepared = await ask();
    // Takes whatever backend the client does not keep.
    await other.query('BEGIN');
    for (let i = 0; i < OFTEN; i += 1) expect(await ask()).toEqual(prepared);
    await other.query('COMMIT');
  });

  it('constants are read in the settings of whoever asks', async () => {
    const hasSchemas = POSTERN_PLACEMENT === 'database';
    const text = `SELECT '01/02/2020'::date::text AS day, '2020-01-01 00:00'::timestamptz = '2020-01-01 00:00Z' AS utc,
      ('-1 2:03'::interval)::text = '-1 days +02:03:00' AS mixed, ${hasSchemas ? "'t'::regclass::oid = 'second.t'::regclass::oid" : 'true'} AS second,
      array_position('{NULL}'::text[], NULL) AS is_null`;
    const SETTINGS = [
      ['DateStyle', 'ISO, MDY', 'ISO, DMY'],
      ['TimeZone', 'UTC', 'Asia/Tokyo'],
      ['IntervalStyle', 'postgres', 'sql_standard'],
      ['search_path', 'public', 'second'],
      ['array_nulls', 'on', 'off'],
    ] as const;
    if (hasSchemas) {
      await client.query('CREATE SCHEMA second; CREATE TABLE public.t (a int); CREATE TABLE second.t (a int)');
      await client.query('SET search_path = public');
    }
    for (const [name, one, two] of SETTINGS.filter(([setting]) => hasSchemas || setting !== 'search_path')) {
      const answers: unknown[] = [];
      for (const value of [one, two, one]) {
        await client.query(`SELECT set_config('${name}', '${value}', false)`);
        const { rows } = await client.query(text);
        for (let i = 0; i < OFTEN + 2; i += 1) expect([name, value, await wire(text)]).toEqual([name, value, rows]);
        answers.push(rows);
      }
      expect([name, answers[0]]).toEqual([name, answers[2]]);
      expect([name, answers[0]]).not.toEqual([name, answers[1]]);
      await client.query('BEGIN');
      await client.query(`SET LOCAL ${name} TO ${name === 'search_path' ? two : `'${two}'`}`);
      for (let i = 0; i < OFTEN; i += 1) expect([name, await wire(text)]).toEqual([name, answers[1]]);
      await client.query('COMMIT');
      expect([name, await wire(text)]).toEqual([name, answers[0]]);
    }
  });

  it('constants over HTTP are read in the settings of the role', async () => {
    const text = "SELECT '01/02/2020'::date AS day, '2020-01-01 00:00'::timestamptz AS moment";
    const ask = async () => {
      const answers = await Promise.all(Array.from({ length: OFTEN }, () => http(text)));
      return new Set(answers.map((rows) => JSON.stringify(rows)));
    };
    expect(await ask()).toEqual(new Set(['[{"day":"2020-01-02","moment":"2020-01-01T00:00:00.000000Z"}]']));
    for (const set of [`DateStyle = 'ISO, DMY'`, `TimeZone = 'Asia/Tokyo'`]) await http(`ALTER ROLE ${acme.id} SET ${set}`);
    expect(await ask()).toEqual(new Set(['[{"day":"2020-02-01","moment":"2019-12-31T15:00:00.000000Z"}]']));
    await other.query(`ALTER ROLE ${acme.id} RESET ALL`);
    expect(await ask()).toEqual(new Set(['[{"day":"2020-01-02","moment":"2020-01-01T00:00:00.000000Z"}]']));
  });

  function outcome(asked: Promise<unknown>): Promise<unknown> {
    return asked.then(
      (rows) => rows,
      (error: Error) => error.message,
    );
  }

  describe.each(['seen', 'hidden in a function'])('after a change that is %s,', (how) => {
    /** @returns what makes all anew */
    async function make(made: string, anew: string, by: pg.Client = other): Promise<() => Promise<unknown>> {
      await other.query(made);
      if (how === 'seen') return () => by.query(anew);
      await other.query(`CREATE FUNCTION anew() RETURNS void LANGUAGE plpgsql AS $body$ BEGIN ${anew}; END $body$`);
      return () => by.query('SELECT anew()');
    }

    it.each(Object.entries(HELD))('%s is the new one over HTTP', async (_name, [made, sql, params, anew, later = params]) => {
      const change = await make(made, anew, client);
      // The client has the one backend, so that the calls have the other, which knows nothing of the change.
      await client.query('BEGIN');
      for (let i = 0; i < OFTEN; i += 1) await http(sql, params);
      await change();
      await client.query('COMMIT');
      await client.query('BEGIN');
      const expected = await fresh(http, sql, later);
      for (let i = 0; i < OFTEN; i += 1) expect(await outcome(http(sql, later))).toEqual(expected);
      expect(await http(sql, later)).toHaveLength(1);
    });

    it.each(Object.entries(HELD))('%s is the new one on the wire', async (_name, [made, sql, params, anew, later = params]) => {
      const change = await make(made, anew);
      for (let i = 0; i < OFTEN; i += 1) await wire(sql, params);
      await change();
      const expected = await fresh(wire, sql, later);
      for (let i = 0; i < OFTEN; i += 1) expect(await outcome(wire(sql, later))).toEqual(expected);
      expect(await wire(sql, later)).toHaveLength(1);
    });

    it.each(Object.entries(HELD))(
      '%s is the new one for a name that is given on the wire',
      async (_name, [made, text, params, anew, later = params]) => {
        const change = await make(made, anew);
        const ask = (name: string, values: readonly unknown[]) =>
          client.query({ name, text, values: [...values] }).then(({ rows }) => rows);
        for (let i = 0; i < OFTEN; i += 1) await ask(`before ${i}`, params);
        await change();
        const expected = await fresh(wire, text, later);
        // Where only the server knows of the change, the first one may be told what becomes of a name that had been given before.
        if (how !== 'seen') await outcome(ask('first', later));
        for (let i = 0; i < OFTEN; i += 1) expect(await outcome(ask(`after ${i}`, later))).toEqual(expected);
      },
    );
  });
});
