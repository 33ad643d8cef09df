import { readFile } from 'node:fs/promises';
import pg from 'pg';
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest';
import { channelSecret, channelsOf } from '../../../src/auth/derived-secrets.ts';
import { createChannelFunctions, keepChannelSecret } from '../../../src/placement/shared-database.ts';
import type { ErrorFields } from '../../../src/protocol/backend.ts';
import { clientChannel, clientSearchPath, serverSearchPath } from '../../../src/rewriting/names.ts';
import { rewriteSql } from '../../../src/rewriting/rewrite-sql.ts';
import { SchemaRewriter } from '../../../src/rewriting/rewriter.ts';
import { contentOf, isString, Lexer } from '../../../src/syntax/scanner.ts';
import type { TestCluster } from '../../support/cluster.setup.ts';
import { inThisPart } from '../../support/parts.ts';
import { hasPostgres15, startPostgres15 } from '../../support/postgres15.ts';
import { SeededRandom } from '../../support/random.ts';
import { describeSchema } from './dump/describe-schema.ts';
import { SCHEMA } from './marked.ts';
import { RECORDED } from './recorded-statements.ts';

const SECRET = 'a secret of the tests';
const CHANNELS = channelsOf(channelSecret(SECRET), SCHEMA);
/** Clients know the database by the organization's name, too. */
const DATABASES = { own: SCHEMA, shared: 'search_path_shared' };
const TARGET = { schema: SCHEMA, channels: CHANNELS, pgNotify: 'postern.pg_notify', database: DATABASES.shared };

type Server = TestCluster & { stop(): Promise<void> };

const servers: { name: string; start: () => Promise<Server> }[] = [
  { name: 'PostgreSQL 18', start: async () => ({ ...inject('cluster'), stop: async () => {} }) },
  ...(hasPostgres15 ? [{ name: 'PostgreSQL 15', start: startPostgres15 }] : []),
];

/** What a client gets for a statement: rows, or an error. */
interface Answer {
  readonly rows?: unknown[];
  readonly error?: ErrorFields;
}

const numberOf = (text: string | undefined) => (text === undefined ? undefined : Number(text));

/**
 * Two sessions of one role: `own` in a database of its own, where `public` is its own; `shared` in a database where `public`
 * is closed and a schema with the role's name takes its place. What a client sends to both has to have the same answers.
 */
describe.each(inThisPart(servers, ({ start }) => start !== startPostgres15))('on $name', ({ start }) => {
  let server: Server;
  let admin: pg.Client;
  let own: pg.Client;
  let shared: pg.Client;

  async function connect(database: string, options?: string): Promise<pg.Client> {
    const { host, port } = server;
    const client = new pg.Client({ host, port, user: SCHEMA, password: 'tenant', database, ...(options === undefined ? {} : { options }) });
    await client.connect();
    return client;
  }

  beforeAll(async () => {
    server = await start();
    admin = new pg.Client(server);
    await admin.connect();
    await admin.query(`CREATE ROLE ${SCHEMA} LOGIN NOCREATEDB NOCREATEROLE PASSWORD 'tenant'`);
    await admin.query(`CREATE DATABASE ${DATABASES.own} OWNER ${SCHEMA} TEMPLATE template0`);
    await admin.query(`CREATE DATABASE ${DATABASES.shared} TEMPLATE template0`);
    const platform = new pg.Client({ ...server, database: DATABASES.shared });
    await platform.connect();
    await platform.query('REVOKE ALL ON SCHEMA public FROM PUBLIC');
    await platform.query(`CREATE SCHEMA ${SCHEMA}; GRANT USAGE, CREATE ON SCHEMA ${SCHEMA} TO ${SCHEMA}`);
    await createChannelFunctions(platform, { owner: server.user, secret: SECRET });
    await keepChannelSecret(platform, SECRET);
    await platform.end();
    own = await connect(DATABASES.own);
    shared = await connect(DATABASES.shared, `-c search_path=${serverSearchPath('"$user",public', SCHEMA)}`);
  });

  afterAll(async () => {
    await own.end();
    await shared.end();
    await admin.query(`DROP DATABASE ${DATABASES.own}`);
    await admin.query(`DROP DATABASE ${DATABASES.shared}`);
    await admin.query(`DROP ROLE ${SCHEMA}`);
    await admin.end();
    await server.stop();
  });

  async function ask(client: pg.Client, sql: string, values: readonly unknown[]): Promise<Answer> {
    try {
      const result: pg.QueryArrayResult | pg.QueryArrayResult[] = await client.query({ text: sql, values: [...values], rowMode: 'array' });
      return { rows: [result].flat().flatMap(({ rows }) => rows) };
    } catch (error) {
      if (!(error instanceof pg.DatabaseError)) throw error;
      const { severity = '', code, message, detail, hint, position, internalQuery, internalPosition, where } = error;
      const fields = {
        severity,
        code,
        message,
        detail,
        hint,
        position: numberOf(position),
        internalQuery,
        internalPosition: numberOf(internalPosition),
        where,
      };
      return { error: Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as unknown as ErrorFields };
    }
  }

  /** As through the router: the statement rewritten, the error put back into the client's words. */
  async function askShared(sql: string, values: readonly unknown[]): Promise<Answer> {
    const rewriter = new SchemaRewriter(TARGET);
    const { sql: rewritten, edits } = rewriter.rewrite(sql);
    const { rows, error } = await ask(shared, rewritten, values);
    if (error === undefined) return { rows: rows ?? [] };
    return { error: rewriter.error(error, edits) };
  }

  async function sameAnswer(sql: string, ...values: unknown[]): Promise<Answer> {
    const wanted = await ask(own, sql, values);
    expect(await askShared(sql, values), sql).toEqual(wanted);
    return wanted;
  }

  it('the role has no way into the real public', async () => {
    const { error } = await ask(shared, 'CREATE TABLE public.x ()', []);
    expect(error).toMatchObject({ code: '42501', message: 'permission denied for schema public' });
  });

  describe('a dump of pg_dump', () => {
    beforeAll(async () => {
      // Made by pg_dump 15 --inserts, without psql's commands, of the database that dump/source.sql makes.
      const dump = await readFile(new URL('dump/pg_dump-15.sql', import.meta.url), 'utf8');
      await own.query(dump);
      await shared.query(rewriteSql(dump, TARGET).sql);
      for (const client of [own, shared]) await client.query('RESET ALL');
    });

    it('makes the same objects as in public', async () => {
      const wanted = await describeSchema(own, 'public');
      expect(wanted.length).toBeGreaterThan(150);
      expect(await describeSchema(shared, SCHEMA)).toEqual(wanted);
    });

    it.each([
      'teams ORDER BY id',
      'users ORDER BY id',
      'public',
      'measures ORDER BY taken',
      'events',
      'moods ORDER BY mood',
      'team_sizes ORDER BY id',
    ])('has the rows of %s', async (relation) => {
      const { rows } = await sameAnswer(`SELECT * FROM public.${relation}`);
      expect(rows?.length).toBeGreaterThan(0);
    });

    it('works as in public: triggers, functions, defaults, rules', async () => {
      await sameAnswer(`INSERT INTO public.users (team_id, email, home) VALUES (3, 'd@public.x', ROW('C', 'Bonn')) RETURNING *`);
      await sameAnswer(`SELECT relation, operation, row_data FROM public.audit ORDER BY at`);
      await sameAnswer(`CALL public.rename_team(2, 'renamed')`);
      await sameAnswer(`UPDATE "public".teams SET public = false WHERE name = 'renamed public.x' RETURNING slug, public`);
      await sameAnswer(
        `SELECT public.slug('A B'), public.total_mood(mood), (public.team_of(users)).name FROM public.users GROUP BY 3 ORDER BY 3`,
      );
      await sameAnswer(`SELECT a.id FROM users a JOIN users b ON a.home OPERATOR(public.===) b.home ORDER BY a.id, b.id`);
      await sameAnswer(
        `SELECT nextval('public.ticket_numbers'), currval('public.ticket_numbers'), pg_get_serial_sequence('public.teams', 'id')::regclass::text`,
      );
      await sameAnswer(`DELETE FROM public.public`);
      await sameAnswer(`DROP TABLE public.measures CASCADE; SELECT to_regclass('public.measures'), to_regclass('public.teams')::text`);
      await sameAnswer(
        `CREATE TABLE public.copies (LIKE public.teams INCLUDING ALL); INSERT INTO copies (id, name) SELECT id, name FROM public.teams RETURNING id, slug`,
      );
    });
  });

  it.each(Object.keys(RECORDED))('what %s sends has the same answers', async (client) => {
    for (const [sql, ...values] of RECORDED[client] ?? []) {
      const { error } = await sameAnswer(sql, ...values);
      expect(error, sql).toBeUndefined();
    }
  });

  describe('what programs ask of the catalogs', () => {
    beforeAll(async () => {
      const sql = `CREATE TABLE public.asked (id serial PRIMARY KEY, public text); CREATE TYPE public.asked_kind AS ENUM ('public');
        CREATE FUNCTION public.asked_one(public.asked_kind) RETURNS int LANGUAGE sql AS 'SELECT 1'; INSERT INTO public.asked (public) VALUES ('a')`;
      await own.query(sql);
      await shared.query(rewriteSql(sql, TARGET).sql);
    });

    it.each<[sql: string, ...values: unknown[]]>([
      ['SELECT to_regclass($1)::text, to_regclass($2)::text', 'public.asked', ' "public" . asked'],
      ['SELECT to_regclass($1)::text, to_regclass($2::text)::text', 'PUBLIC.nothing', 'asked'],
      ['SELECT to_regtype($1)::text, to_regprocedure($2)::text', 'public.asked_kind[]', 'public.asked_one(public.asked_kind)'],
      [
        'SELECT $1::regclass::text, CAST($2 AS pg_catalog.regclass)::text, $3::text::regclass::text',
        'public.asked',
        '"public"."asked"',
        'public.asked',
      ],
      ['SELECT $1::regclass::text, ($2)::regclass::text, $3::regtype::text', '1259', 'pg_class', 'public.asked_kind'],
      ['SELECT $1::regclass[]::text, $2::regnamespace = to_regnamespace($3)', ['public.asked', 'pg_class'], 'public', '"public"'],
      ['SELECT relname FROM pg_class WHERE oid = ANY ($1::regclass[]) ORDER BY 1', ['public.asked', 'pg_class']],
      ['SELECT attname FROM pg_attribute WHERE attrelid = $1::regclass AND attnum > 0', 'public.asked'],
      ["SELECT has_table_privilege($1, 'SELECT'), has_table_privilege($2, $1, 'SELECT')", 'public.asked', SCHEMA],
      ["SELECT has_column_privilege($1, 'public', 'SELECT'), has_type_privilege($2, 'USAGE')", 'public.asked', 'public.asked_kind'],
      ["SELECT has_schema_privilege($1, 'CREATE'), has_schema_privilege($2, $1, 'USAGE')", 'public', SCHEMA],
      ['SELECT nextval($1), currval($2::regclass), setval($3, 7)', 'public.asked_id_seq', 'public.asked_id_seq', 'public.asked_id_seq'],
      ["SELECT pg_get_serial_sequence($1, 'id')::regclass::text, pg_table_size($2) > 0", 'public.asked', 'public.asked'],
      ["SELECT nextval('public.' || $1)", 'asked_id_seq'],
      ["SELECT set_config('search_path', $1, false) IS NULL; ", '"$user", public'],
      ["SELECT count(*) FROM information_schema.tables WHERE table_catalog = 'DATABASE' AND table_name = $1", 'asked'],
      [
        'SELECT count(*) FROM information_schema.columns WHERE table_catalog = $1 AND table_schema = $2 AND table_name = $3',
        SCHEMA,
        'public',
        'asked',
      ],
      ['SELECT count(*) FROM pg_database WHERE datname = $1 OR datname IN ($2)', SCHEMA, 'nothing'],
      ["SELECT count(*) FROM pg_database WHERE datname = current_database() AND current_database() = 'DATABASE'"],
      ['SELECT current_schema() = $1, current_schema = $1, $1 = current_schema()', 'public'],
      [
        "SELECT count(*) FROM pg_tables WHERE schemaname = ANY (ARRAY['public', 'x']) AND schemaname = ANY ('{public}') AND tablename = 'asked'",
      ],
      [
        "SELECT count(*) FROM pg_tables WHERE schemaname LIKE 'pub%' AND schemaname ~ '^public$' AND 'public' = schemaname AND tablename = 'asked'",
      ],
      ["SELECT count(*) FROM pg_tables WHERE (schemaname, tablename) IN (('public', 'asked'), ('public', 'public'))"],
      ['SELECT count(*) FROM pg_tables t WHERE (tablename, t.schemaname) = ($2, $1)', 'public', 'asked'],
      ['SELECT count(*) > 0 FROM U&"publ\\0069c".asked'],
    ])('%s', async (sql, ...values) => {
      const { error } = await sameAnswer(sql.replace('DATABASE', SCHEMA), ...values);
      expect(error).toBeUndefined();
    });

    it.each<[sql: string, ...values: unknown[]]>([
      ['SELECT $1::regclass', 'public.nothing'],
      ['SELECT nextval($1)', 'public.nothing'],
      ["SELECT has_table_privilege($1, 'SELECT')", 'public.nothing'],
      ['SELECT $1::regtype', 'public.nothing'],
    ])('an error reads the same: %s', async (sql, ...values) => {
      // Directly the parameter is in the context, too.
      const wanted = (await ask(own, sql, values)).error;
      const { code, message } = wanted ?? {};
      expect((await askShared(sql, values)).error).toMatchObject({ code, message });
      expect(wanted).toBeDefined();
    });

    it('what PostgreSQL 18 has', async () => {
      const version = Number((await own.query('SHOW server_version_num')).rows[0].server_version_num);
      if (version < 180_000) return;
      await sameAnswer("SELECT pg_restore_relation_stats('schemaname', 'public', 'relname', 'asked', 'relpages', 7)");
      await sameAnswer("SELECT relpages FROM pg_class WHERE oid = 'public.asked'::regclass");
      const { error } = await sameAnswer("UPDATE public.asked SET public = 'b' RETURNING WITH (OLD AS public) public.public, asked.public");
      expect(error).toBeUndefined();
    });
  });

  it.each([
    'SELECT * FROM public.nothing',
    'SELECT ä, \'public.ü😀\', nothing FROM "public"."nowhere"',
    'SELECT public.nothing(1), public.nothing(2)',
    'SELECT 1 FROM public.ctext JOIN public.b ON',
    "SELECT 'public.nothing'::regclass",
    "SELECT nextval('public.nothing')",
    'CREATE TABLE public.a (x public.nothing)',
    "CREATE FUNCTION public.f() RETURNS int LANGUAGE sql AS $$ SELECT 1 FROM public.nothing WHERE 'public' $$",
    "CREATE FUNCTION public.f() RETURNS int LANGUAGE plpgsql AS 'BEGIN PERFORM ''x'' FROM public.nothing; SELEKT 1; END'",
    'DO $$ BEGIN PERFORM 1 FROM public.a, public.nothing; END $$',
    "DO $$ BEGIN EXECUTE 'SELECT 1 FROM public.a, public.nothing'; END $$",
    'DROP TABLE public.nothing',
    "COMMENT ON COLUMN public.nothing.x IS 'public'",
    'CREATE SCHEMA public',
    `SELECT 1; CREATE SCHEMA "public" AUTHORIZATION current_user; SELECT 2`,
    'SELECT $1::public.nothing',
  ])('an error reads the same: %s', async (sql) => {
    const { error } = await sameAnswer(sql);
    expect(error).toBeDefined();
  });

  it('search_path reads back as the client wrote it', async () => {
    for (const set of [
      'RESET search_path',
      'SET search_path = public',
      'SET search_path TO "$user", public, pg_temp',
      `SET LOCAL search_path = 'public'`,
      `SET SCHEMA 'public'`,
      `SELECT set_config('search_path', '"$user", public', false)`,
      'SET search_path TO DEFAULT',
    ]) {
      await ask(own, set, []);
      await askShared(set, []);
      const show = async (client: pg.Client): Promise<string> => String((await ask(client, 'SHOW search_path', [])).rows?.flat()[0]);
      expect(clientSearchPath(await show(shared), SCHEMA).replace('"$user",public', '"$user", public')).toBe(await show(own));
    }
  });

  it('channels are those of the organization', async () => {
    const heard: string[] = [];
    const long = 'x'.repeat(60);
    const listening = rewriteSql(`LISTEN changes; LISTEN "${long}"; LISTEN public`, TARGET);
    const listener = await connect(DATABASES.shared);
    await listener.query(listening.sql);
    await listener.query('LISTEN changes');
    listener.on('notification', ({ channel }) =>
      heard.push(clientChannel(channel, CHANNELS, listening.longChannels) ?? `not ours: ${channel}`),
    );
    await shared.query(
      rewriteSql(`NOTIFY changes; NOTIFY public; NOTIFY ${long}; SELECT pg_notify('changes', 'b'), pg_notify('${long}', 'y')`, TARGET).sql,
    );
    await shared.query(rewriteSql('SELECT pg_notify($1, $2)', TARGET).sql, ['changes', 'c']);
    await shared.query(rewriteSql(`DO $$ BEGIN PERFORM pg_notify('chan' || 'ges', 'd'); NOTIFY changes, 'e'; END $$`, TARGET).sql);
    await shared.query('NOTIFY changes');
    await listener.query('SELECT 1');
    expect(heard).toEqual(['changes', 'public', long, 'changes', long, 'changes', 'changes', 'changes', 'not ours: changes']);
    await listener.end();
  });

  it('strings say what the server reads in them', async () => {
    const random = new SeededRandom(15);
    const pieces = [
      `''`,
      `\\\\`,
      `\\'`,
      `\\x41`,
      `\\101`,
      `\\u00e4`,
      `\\n`,
      `\\q`,
      'a',
      'ü',
      '"',
      '$',
      '\n',
      `'\n'`,
      `' -- c\n '`,
      '\\0061',
      '!0061',
      '!+00e4',
    ];
    let read = 0;
    for (let round = 0; round < 1500; round++) {
      const body = Array.from({ length: 1 + random.below(6) }, () => pieces[random.below(pieces.length)]).join('');
      const literal = [`'${body}'`, `E'${body}'`, `U&'${body}'`, `U&'${body}' UESCAPE '!'`, `$a$${body}$a$`][random.below(5)] ?? '';
      const lexer = new Lexer(literal);
      if (!isString(lexer.next()) || !lexer.terminated || lexer.end !== literal.length) continue;
      const { rows } = await ask(own, `SELECT ${literal}::text`, []);
      if (rows === undefined) continue;
      read++;
      expect(rows, literal).toEqual([[contentOf(lexer)?.text]]);
    }
    expect(read).toBeGreaterThan(500);
  });
});
