import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdir, readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import pg from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { runAdmin } from '../support/clusters.ts';
import { EXAMPLES } from '../support/documents.ts';
import { startPostgres15 } from '../support/postgres15.ts';
import { ADMIN } from '../support/process.ts';
import { makeScratch, type Scratch } from '../support/scratch.ts';
import { serverUrl } from '../support/server-url.ts';
import { PLACEMENTS, startTestService, type TestOrganization, type TestService, testVariables } from '../support/service.ts';
import { libpqEnvironment, needDebian, runClient } from './debian.ts';

const BINARIES = '/usr/lib/postgresql/15/bin';

/** What a dump has to carry, also where a name or a value looks like the end of something. */
const CONTENT = `
  CREATE TYPE mood AS ENUM ('calm', 'it''s fine; really');
  CREATE TABLE teams (id serial PRIMARY KEY, name text NOT NULL UNIQUE, mood mood DEFAULT 'calm');
  CREATE TABLE members (team int REFERENCES teams, body text, picture bytea, doubled int GENERATED ALWAYS AS (team * 2) STORED);
  CREATE TABLE "odd; name" ("a""b;" text, "COPY x FROM stdin;" int);
  CREATE VIEW busy AS SELECT t.name, count(*) FROM teams t JOIN members m ON m.team = t.id GROUP BY 1;
  CREATE MATERIALIZED VIEW counted AS SELECT count(*) AS members FROM members;
  CREATE FUNCTION double(n int) RETURNS int LANGUAGE plpgsql AS $f$ BEGIN
-- COPY teams FROM stdin;
    RETURN 2 * n; END $f$;
  CREATE FUNCTION loud() RETURNS trigger LANGUAGE plpgsql AS $f$ BEGIN NEW.body := upper(NEW.body); RETURN NEW; END $f$;
  INSERT INTO teams (name, mood) SELECT 'team ' || n, CASE WHEN n % 2 = 0 THEN 'it''s fine; really'::mood ELSE 'calm' END FROM generate_series(1, 500) n;
  INSERT INTO members SELECT 1 + n % 500, repeat('zeile' || chr(10) || '\\.' || chr(9), n % 7), decode(md5(n::text), 'hex') FROM generate_series(1, 5000) n;
  INSERT INTO "odd; name" VALUES (NULL, 1), (E'\\\\.\\n\\\\.', 2), ('COPY x FROM stdin;' || chr(10), 3), ('äöü €', 4);
  REFRESH MATERIALIZED VIEW counted;
  CREATE TRIGGER loud BEFORE INSERT ON members FOR EACH ROW EXECUTE FUNCTION loud();
  COMMENT ON TABLE teams IS 'a comment; with -- everything';
  GRANT SELECT ON teams TO PUBLIC;
`;

const SUMMARY = `SELECT
  (SELECT md5(string_agg(t::text, '|' ORDER BY id)) FROM teams t) AS teams,
  (SELECT md5(string_agg(m::text, '|' ORDER BY m::text)) FROM members m) AS members,
  (SELECT md5(string_agg(o::text, '|' ORDER BY o::text)) FROM "odd; name" o) AS odd,
  (SELECT members::int FROM counted) AS counted, double(21) AS doubled, nextval('teams_id_seq')::int AS next,
  (SELECT count(*)::int FROM busy) AS busy, obj_description('teams'::regclass) AS comment`;

let server: Awaited<ReturnType<typeof startPostgres15>>;
let scratch: Scratch;
beforeAll(async () => {
  needDebian('postgresql-15', 'postgresql-client-15');
  [server, scratch] = await Promise.all([startPostgres15(), makeScratch()]);
});
afterAll(async () => {
  await server.stop();
  await scratch.remove();
});

describe.each(PLACEMENTS)('a dump of an organization, placement %s', (placement) => {
  let variables: Record<string, string>;
  let service: TestService;
  let source: TestOrganization;
  let expected: Record<string, unknown>;
  const file = () => join(scratch.path, `${placement}.dump`);
  beforeAll(async () => {
    variables = {
      ...testVariables(),
      POSTERN_PLACEMENT: placement,
      DATABASE_URL: serverUrl(server),
      PATH: `${BINARIES}:${process.env.PATH}`,
    };
    service = await startTestService(variables);
    source = await service.signUp();
    const client = await service.connect(source);
    await client.query(CONTENT);
    expected = (await client.query(SUMMARY)).rows[0];
    await client.end();
  });
  afterAll(() => service.close());

  const admin = (...words: string[]) => runAdmin(variables, words);
  const asOwner = async <T>(organization: TestOrganization, work: (client: pg.Client) => Promise<T>): Promise<T> => {
    const client = await service.connect(organization);
    try {
      return await work(client);
    } finally {
      await client.end();
    }
  };
  /** A value of a sequence is taken each time. */
  const summaryOf = async (organization: TestOrganization) => ({
    ...(await asOwner(organization, async (client) => (await client.query(SUMMARY)).rows[0])),
    next: expected.next,
  });

  it('is restored into a new one, all of it, by way of a file', async () => {
    expect(await admin('org', 'dump', source.id, '--file', file())).toBe(`${source.id} is dumped to ${file()}`);
    expect((await stat(file())).mode & 0o777).toBe(0o600);
    const target = await service.signUp();
    expect(await admin('org', 'restore', target.id, '--file', file())).toBe(`${target.id} has what was in the dump: rows of 3 tables`);
    expect(await summaryOf(target)).toEqual(expected);
    // What it has belongs to it, and nothing of the first one's is touched.
    await asOwner(target, async (client) => {
      expect((await client.query("SELECT nextval('teams_id_seq')::int AS next")).rows[0].next).toBeGreaterThan(500);
      await client.query("INSERT INTO members VALUES (1, 'small')");
      expect((await client.query("SELECT FROM members WHERE body = 'SMALL'")).rowCount).toBe(1);
      await client.query('DROP TABLE members CASCADE; ALTER TABLE teams ADD other int');
    });
    expect(await summaryOf(source)).toEqual(expected);
  });

  it('that fails leaves the former one, and nothing else', async () => {
    const kept = join(scratch.path, 'kept.dump');
    await writeFile(kept, 'the former one');
    const env = { ...process.env, ...variables, PATH: scratch.path };
    const dump = spawn(process.execPath, [...ADMIN, 'org', 'dump', source.id, '--file', kept], {
      env,
      stdio: ['ignore', 'ignore', 'pipe'],
    });
    const said = text(dump.stderr);
    expect(await once(dump, 'close')).toEqual([1, null]);
    expect(await said).toContain('pg_dump');
    expect(await readFile(kept, 'utf8')).toBe('the former one');
    expect((await readdir(scratch.path)).filter((name) => name.endsWith('.unfinished'))).toEqual([]);
  });

  it('is made and restored as the documents say', async () => {
    const block = EXAMPLES.find(({ section, text: commands }) => section === 'Of one organization' && commands.includes('org dump'));
    const lines = (block?.text ?? '').trim().split('\n');
    const words = (line = '') =>
      (line.match(/'[^']*'|\S+/g) ?? []).map((word) => word.replaceAll("'", '').replace('acme.dump', `${file()}.documented`));
    const [dump, create, restore] = lines.map((line) => words(line).slice(3));
    await admin(...(dump ?? []).map((word) => word.replace(/^org_.*/, source.id)));
    const made = await admin(...(create ?? []).map((word) => word.replace('@', `-${placement}@`)));
    const id = /^(org_\w+) is active/.exec(made)?.[1] ?? '';
    expect(await admin(...(restore ?? []).map((word) => word.replace(/^org_.*/, id)))).toBe(
      `${id} has what was in the dump: rows of 3 tables`,
    );
  });

  it('goes from standard output to standard input', async () => {
    const target = await service.signUp();
    const env = { ...variables };
    const dump = spawn(process.execPath, [...ADMIN, 'org', 'dump', source.id], { env, stdio: ['ignore', 'pipe', 'pipe'] });
    const restore = spawn(process.execPath, [...ADMIN, 'org', 'restore', target.id], { env, stdio: ['pipe', 'pipe', 'pipe'] });
    dump.stdout.pipe(restore.stdin);
    const said = [text(dump.stderr), text(restore.stderr), text(restore.stdout)];
    expect(await Promise.all([once(dump, 'close'), once(restore, 'close')])).toEqual([
      [0, null],
      [0, null],
    ]);
    expect(await Promise.all(said)).toEqual(['', '', `${target.id} has what was in the dump: rows of 3 tables\n`]);
    expect(await summaryOf(target)).toEqual(expected);
  });

  it('may have been made by pg_dump through the wire door', async () => {
    const through = join(scratch.path, `${placement}.through`);
    const words = ['-Fc', '-f', through, ...(placement === 'schema' ? ['-n', source.id] : []), source.id];
    await runClient(join(BINARIES, 'pg_dump'), words, { env: libpqEnvironment(service, source) });
    const target = await service.signUp();
    expect(await admin('org', 'restore', target.id, '--file', through)).toContain('rows of 3 tables');
    expect(await summaryOf(target)).toEqual(expected);
  });

  it('is refused where something is already, and where it is none; nothing is changed then', async () => {
    const target = await service.signUp();
    await asOwner(target, (client) => client.query('CREATE TABLE mine AS SELECT 1 AS a'));
    await expect(admin('org', 'restore', target.id, '--file', file())).rejects.toThrow(/has something already \(mine\)/);
    const empty = await service.signUp();
    const broken = join(scratch.path, 'broken');
    await writeFile(broken, 'CREATE TABLE not_in_the_custom_format ();');
    await expect(admin('org', 'restore', empty.id, '--file', broken)).rejects.toThrow('that is no dump in the custom format of pg_dump');
    const bytes = await readFile(file());
    await writeFile(broken, bytes.subarray(0, Math.floor(bytes.length * 0.8)));
    await expect(admin('org', 'restore', empty.id, '--file', broken)).rejects.toThrow();
    await expect(admin('org', 'restore', empty.id, '--file', join(scratch.path, 'absent'))).rejects.toThrow('cannot be read: ');
    const { rows } = await asOwner(empty, (client) =>
      client.query("SELECT relname FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace WHERE nspname IN ('public', current_user)"),
    );
    expect(rows).toEqual([]);
    const control = new pg.Client({ ...server, database: variables.POSTERN_CONTROL_DATABASE });
    await control.connect();
    // With a limit that it is over, or the service would let it write again.
    const over = `UPDATE postern.organizations SET disk_state = 'over', limits = '{"diskBytes": 1}' WHERE id = $1`;
    await control.query(over, [target.id]);
    await control.end();
    await expect(admin('org', 'dump', target.id, '--file', broken)).rejects.toMatchObject({ kind: 'disk_quota_exceeded' });
    await expect(admin('org', 'dump', 'org_000000000000', '--file', broken)).rejects.toMatchObject({ kind: 'not_found' });
  });

  it('of the other placement is refused', async () => {
    const other = await startTestService({ ...variables, POSTERN_PLACEMENT: placement === 'schema' ? 'database' : 'schema' });
    try {
      const target = await other.signUp();
      await expect(admin('org', 'restore', target.id, '--file', file())).rejects.toThrow('restore it there, and move it afterwards');
    } finally {
      await other.close();
    }
  });
});
