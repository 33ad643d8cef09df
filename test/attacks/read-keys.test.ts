import { once } from 'node:events';
import pg from 'pg';
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest';
import { newControlDatabase } from '../support/control-databases.ts';
import { PLACEMENTS, startTestService, type TestOrganization, type TestService } from '../support/service.ts';
import { DOORS } from './doors.ts';

type Kind = (typeof PLACEMENTS)[number];

/** What a read key must not do, with the SQLSTATE that it gets. Several statements are one transaction, of which the last fails. */
const ATTACKS: readonly (readonly [way: string, sql: string | readonly string[], sqlstate?: string])[] = [
  ['inserts a row', "INSERT INTO orders VALUES (9, 'mine')"],
  ['updates a row', "UPDATE orders SET note = 'mine'"],
  ['deletes a row', 'DELETE FROM orders'],
  ['merges rows', "MERGE INTO orders o USING (VALUES (1)) AS v (id) ON o.id = v.id WHEN MATCHED THEN UPDATE SET note = 'mine'"],
  ['truncates a table', 'TRUNCATE orders'],
  ['writes in a query', 'WITH gone AS (DELETE FROM orders RETURNING *) SELECT * FROM gone'],
  ['locks rows', 'SELECT * FROM orders FOR UPDATE'],
  ['locks rows for its own key', 'SELECT * FROM orders FOR KEY SHARE'],
  ['locks a table', ['SELECT 1', 'LOCK TABLE orders IN ROW EXCLUSIVE MODE']],
  ['writes through a view', "INSERT INTO recent VALUES (9, 'mine')"],
  ['writes through a function', "SELECT add_order('mine')"],
  ['writes in a DO block', 'DO $$ BEGIN DELETE FROM orders; END $$'],
  ['leaves read only and writes', ['SET TRANSACTION READ WRITE', "INSERT INTO orders VALUES (9, 'mine')"]],
  ['takes the next value of a sequence', "SELECT nextval('numbers')"],
  ['sets a sequence', "SELECT setval('numbers', 900)"],
  ['refreshes a materialized view', 'REFRESH MATERIALIZED VIEW totals'],
  ['creates a table', 'CREATE TABLE mine (id int)'],
  ['creates a table of a query', 'CREATE TABLE mine AS SELECT * FROM orders'],
  ['selects into a table', 'SELECT * INTO mine FROM orders'],
  ['creates a temporary table', 'CREATE TEMPORARY TABLE mine (id int)'],
  ['creates a temporary table of a query', 'CREATE TEMP TABLE mine ON COMMIT DROP AS SELECT * FROM orders'],
  ['selects into a temporary table', 'SELECT * INTO TEMP mine FROM orders'],
  ['creates a table in pg_temp', 'CREATE TABLE pg_temp.mine (id int)'],
  ['creates a temporary view', 'CREATE TEMPORARY VIEW mine AS SELECT 1'],
  ['creates a temporary sequence', 'CREATE TEMPORARY SEQUENCE mine'],
  ['creates a function in pg_temp', "CREATE FUNCTION pg_temp.mine() RETURNS int LANGUAGE sql AS 'SELECT 1'"],
  ['creates a type in pg_temp', "CREATE TYPE pg_temp.mine AS ENUM ('a')"],
  ['creates a domain in pg_temp', 'CREATE DOMAIN pg_temp.mine AS int'],
  ['creates an operator in pg_temp', 'CREATE OPERATOR pg_temp.=== (LEFTARG = int, RIGHTARG = int, FUNCTION = int4eq)'],
  ['creates a view', 'CREATE VIEW mine AS SELECT 1'],
  ['creates a function', "CREATE FUNCTION mine() RETURNS int LANGUAGE sql AS 'SELECT 1'"],
  ['creates a type', "CREATE TYPE mine AS ENUM ('a')"],
  ['creates a sequence', 'CREATE SEQUENCE mine'],
  ['creates a schema', 'CREATE SCHEMA mine'],
  ['creates an extension', 'CREATE EXTENSION citext'],
  ['creates an index', 'CREATE INDEX ON orders (note)'],
  ['creates a trigger', 'CREATE TRIGGER mine BEFORE INSERT ON orders FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()'],
  ['creates a policy', 'CREATE POLICY mine ON accounts USING (true)'],
  ['creates a rule', 'CREATE RULE mine AS ON INSERT TO orders DO INSTEAD NOTHING'],
  ['creates statistics', 'CREATE STATISTICS mine ON id, note FROM orders'],
  ['creates a publication', 'CREATE PUBLICATION mine'],
  ['creates a large object', 'SELECT lo_create(0)'],
  ['creates a large object without a number', 'SELECT lo_creat(-1)'],
  ['creates a large object with content', "SELECT lo_from_bytea(0, 'mine')"],
  ['creates a role', 'CREATE ROLE mine'],
  ['creates a database', 'CREATE DATABASE mine', '25001'],
  ['alters a table', 'ALTER TABLE orders ADD COLUMN mine int'],
  ['drops a table', 'DROP TABLE orders'],
  ['switches row security off', ['SET row_security = off', 'SELECT * FROM accounts']],
  ['takes row security from a table', 'ALTER TABLE accounts DISABLE ROW LEVEL SECURITY'],
  ['comments on a table', "COMMENT ON TABLE orders IS 'mine'"],
  ['grants itself more', ['GRANT ALL ON orders TO CURRENT_USER', 'DELETE FROM orders']],
  ['becomes the owner', 'SET ROLE "$ORG"'],
  ['logs in as the owner', 'SET SESSION AUTHORIZATION "$ORG"'],
  ['joins the owner', 'GRANT "$ORG" TO CURRENT_USER'],
  ['joins the owners', 'GRANT postern_owners TO CURRENT_USER'],
  ['gives the owner another password', `ALTER ROLE "$ORG" PASSWORD 'mine'`],
  ['takes over the owner’s objects', 'REASSIGN OWNED BY "$ORG" TO CURRENT_USER'],
  ['drops the owner’s objects', 'DROP OWNED BY "$ORG"'],
  ['changes the owner’s default privileges', 'ALTER DEFAULT PRIVILEGES FOR ROLE "$ORG" GRANT ALL ON TABLES TO CURRENT_USER'],
  ['reads passwords', 'SELECT * FROM pg_authid'],
  ['reads a table of files', "SELECT pg_read_file('postgresql.conf')"],
  ['reads the SQL of migrations', 'SELECT * FROM $LEDGER'],
  ['reads replies to others', 'SELECT * FROM $REPLIES'],
  ['reads a table of another', 'SELECT * FROM $OTHER.notes', '*'],
];

/** What a data key may do. */
const CHANGES_ROWS = new Set([
  'inserts a row',
  'updates a row',
  'deletes a row',
  'merges rows',
  'writes in a query',
  'locks rows',
  'locks rows for its own key',
  'locks a table',
  'writes through a view',
  'writes through a function',
  'writes in a DO block',
  'leaves read only and writes',
  'takes the next value of a sequence',
  'grants itself more',
]);

/** What a data key must not do. */
const DATA_ATTACKS: typeof ATTACKS = [
  ...ATTACKS.filter(([way]) => !CHANGES_ROWS.has(way)),
  ['grants itself more', ['GRANT ALL ON orders TO CURRENT_USER', 'TRUNCATE orders']],
  ['truncates what else refers to', 'TRUNCATE orders RESTART IDENTITY CASCADE'],
  ['restarts a sequence', 'ALTER SEQUENCE numbers RESTART'],
  ['refers to a table', 'CREATE TABLE mine (id int REFERENCES orders)'],
  ['indexes in another way', 'REINDEX TABLE orders'],
  ['clusters a table', 'CLUSTER orders USING orders_pkey'],
  ['switches triggers off', 'ALTER TABLE orders DISABLE TRIGGER ALL'],
  ['writes as a replica', ["SET session_replication_role = 'replica'"]],
  ['forces no row security', 'ALTER TABLE accounts NO FORCE ROW LEVEL SECURITY'],
  ['gives a row to others', 'INSERT INTO accounts VALUES (3, false)'],
  ['hides a row', 'UPDATE accounts SET shown = false'],
  ['takes rows of others with row security off', ['SET row_security = off', 'DELETE FROM accounts']],
  ['bypasses row security', 'ALTER ROLE CURRENT_USER BYPASSRLS'],
  ['renames its role', 'ALTER ROLE "$ORG_data" RENAME TO mine', '*'],
  ['gives its role a setting with a dot for one database', `ALTER ROLE CURRENT_USER IN DATABASE "$DATABASE" SET app.user_id = '1'`],
  ['calls what is closed to PUBLIC', 'SELECT closed()'],
  ['changes a function', "CREATE OR REPLACE FUNCTION double(int) RETURNS int LANGUAGE sql AS 'SELECT 3 * $1'"],
  ['replaces a view', 'CREATE OR REPLACE VIEW recent AS SELECT 1'],
  ['moves a table', 'ALTER TABLE orders SET SCHEMA pg_temp'],
  ['copies from a program', "COPY orders FROM PROGRAM 'true'"],
  ['copies into a file', "COPY orders TO '/tmp/mine'"],
  ['reads the rows of migrations', 'DELETE FROM $LEDGER'],
  ['makes a reply to others', "INSERT INTO $REPLIES VALUES ('mine', '', 200, '', '')"],
  ['becomes a reader', 'SET ROLE "$ORG_read"'],
  ['publishes tables', 'CREATE PUBLICATION mine FOR ALL TABLES'],
  ['imports a file', "SELECT lo_import('/etc/hostname')"],
];

describe.each(PLACEMENTS)('with a %s for each organization, a read key', (kind: Kind) => {
  const variables = { POSTERN_PLACEMENT: kind, POSTERN_CONTROL_DATABASE: newControlDatabase() };
  let service: TestService;
  let owner: TestOrganization;
  let other: TestOrganization;
  let reader: TestOrganization;
  let keyId: string;
  let data: TestOrganization;
  let own: pg.Client;

  const keyOf = async (organization: TestOrganization, scope: 'read' | 'data') => {
    const reply = await service.call('POST', '/api/keys', { key: organization.apiKey, body: { name: 'agent', scope } });
    expect(reply.status, JSON.stringify(reply.body)).toBe(201);
    return { organization: { ...organization, apiKey: reply.body.apiKey }, keyId: reply.body.keyId };
  };
  const readKey = (organization: TestOrganization) => keyOf(organization, 'read');

  beforeAll(async () => {
    service = await startTestService(variables);
    [owner, other] = [await service.signUp(), await service.signUp()];
    await service.query(other, "CREATE TABLE notes AS SELECT 'secret' AS body");
    own = await service.connect(owner);
    await own.query(`
      CREATE TABLE orders (id int PRIMARY KEY, note text);
      INSERT INTO orders VALUES (1, 'one');
      CREATE TABLE accounts (id int, shown boolean);
      INSERT INTO accounts VALUES (1, true), (2, false);
      ALTER TABLE accounts ENABLE ROW LEVEL SECURITY;
      CREATE POLICY visible ON accounts USING (shown);
      CREATE VIEW recent AS SELECT * FROM orders;
      CREATE MATERIALIZED VIEW totals AS SELECT count(*) AS count FROM orders;
      CREATE SEQUENCE numbers;
      CREATE FUNCTION add_order(text) RETURNS void LANGUAGE sql AS 'INSERT INTO orders VALUES (9, $1)';
      CREATE TABLE journal (entry text);
      CREATE FUNCTION note_down(text) RETURNS void LANGUAGE sql SECURITY DEFINER AS 'INSERT INTO journal VALUES ($1)';
      CREATE FUNCTION closed() RETURNS int LANGUAGE sql SECURITY DEFINER AS 'SELECT 1';
      REVOKE EXECUTE ON FUNCTION closed() FROM PUBLIC;
      CREATE FUNCTION double(int) RETURNS int LANGUAGE sql AS 'SELECT 2 * $1'`);
    const migrated = { key: owner.apiKey, body: { name: 'first', sql: 'SELECT 1' }, headers: { 'idempotency-key': 'once' } };
    expect((await service.call('POST', '/api/migrations', migrated)).status).toBe(201);
    ({ organization: reader, keyId } = await readKey(owner));
    data = (await keyOf(owner, 'data')).organization;
  });
  afterAll(async () => {
    await own.end();
    await service.close();
  });

  const inPlace = (sql: string) => {
    const table = (name: string) => (kind === 'database' ? `postern.${name}` : `public.postern_${name}`);
    return sql
      .replaceAll('$ORG', owner.id)
      .replaceAll('$OTHER', other.id)
      .replaceAll('$DATABASE', kind === 'database' ? owner.id : 'postern_shared')
      .replaceAll('$LEDGER', table('migrations'))
      .replaceAll('$REPLIES', table('idempotency_keys'));
  };

  it('reads what there is and what is made later, through every door, under the rules of the owner', async () => {
    await own.query('CREATE TABLE later AS SELECT 7 AS id; CREATE VIEW latest AS SELECT * FROM later');
    const texts = [
      { sql: 'SELECT note FROM orders', rows: [['one']] },
      { sql: 'SELECT id::text FROM accounts', rows: [['1']] },
      { sql: 'SELECT note FROM recent', rows: [['one']] },
      { sql: 'SELECT count::text FROM totals', rows: [['1']] },
      { sql: 'SELECT id::text FROM later', rows: [['7']] },
      { sql: 'SELECT id::text FROM latest', rows: [['7']] },
      { sql: 'SELECT double(21)::text', rows: [['42']] },
      { sql: 'SELECT last_value::text FROM numbers', rows: [['1']] },
      { sql: 'SELECT session_user::text', rows: [[`${owner.id}_read`]] },
    ];
    for (const [name, door] of Object.entries(DOORS))
      for (const { sql, rows } of texts) expect([name, sql, (await door(service, reader, sql)).rows]).toEqual([name, sql, rows]);
    if (kind === 'database') {
      await own.query('CREATE SCHEMA apart; CREATE TABLE apart.things AS SELECT 8 AS id');
      expect((await service.query(reader, 'SELECT id FROM apart.things')).body.rows).toEqual([{ id: 8 }]);
    }
    const client = await service.connect(reader);
    await client.query('LISTEN news');
    await client.query('BEGIN; DECLARE mine CURSOR WITH HOLD FOR SELECT * FROM orders; COMMIT');
    expect((await client.query('FETCH ALL FROM mine')).rows).toEqual([{ id: 1, note: 'one' }]);
    expect((await client.query('EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) SELECT 1')).rows).not.toEqual([]);
    expect((await client.query("SELECT note_down('one')")).rows).toHaveLength(1);
    const heard = once(client, 'notification');
    await own.query("NOTIFY news, 'extra'");
    expect((await heard)[0]).toMatchObject({ channel: 'news', payload: 'extra' });
    await client.end();
  });

  const forEach = (scope: 'read' | 'data', attacks: typeof ATTACKS) =>
    attacks.map(([way, sql, sqlstate = '42501']) => ({ scope, way, sql, sqlstate }));
  it.each([...forEach('read', ATTACKS), ...forEach('data', DATA_ATTACKS)])(
    'gets nowhere, with the scope $scope, when it $way',
    async ({ scope, sql, sqlstate }) => {
      const statements = typeof sql === 'string' ? inPlace(sql) : sql.map(inPlace);
      for (const [name, door] of Object.entries(DOORS)) {
        const reply = await door(service, scope === 'read' ? reader : data, statements);
        const refused = reply.sqlstate !== '00000' && (sqlstate === '*' || reply.sqlstate === sqlstate || reply.sqlstate === '42501');
        expect([name, reply.sqlstate, reply.message, refused]).toEqual([name, reply.sqlstate, reply.message, true]);
      }
      const { rows } = await own.query('SELECT * FROM orders');
      expect(rows).toEqual([{ id: 1, note: 'one' }]);
    },
  );

  it('gets nowhere with what is made after its first session, either', async () => {
    expect((await service.query(reader, 'SELECT 1')).status).toBe(200);
    await own.query('CREATE TABLE newer AS SELECT 1 AS id; CREATE VIEW newest AS SELECT * FROM newer; CREATE SEQUENCE newer_numbers');
    const attempts = [
      'INSERT INTO newer VALUES (9)',
      'UPDATE newer SET id = 9',
      'DELETE FROM newer',
      'TRUNCATE newer',
      'INSERT INTO newest VALUES (9)',
      "SELECT nextval('newer_numbers')",
      "SELECT setval('newer_numbers', 900)",
    ];
    for (const [name, door] of Object.entries(DOORS))
      for (const sql of attempts) expect([name, sql, (await door(service, reader, sql)).sqlstate]).toEqual([name, sql, '42501']);
    expect((await own.query('SELECT * FROM newer')).rows).toEqual([{ id: 1 }]);
  });

  it('writes nothing by COPY, and neither makes keys nor runs migrations', async () => {
    const client = await service.connect(reader);
    await expect(client.query('COPY orders FROM STDIN')).rejects.toMatchObject({ code: '42501' });
    await client.end();
    const refused = [
      ['POST', '/api/migrations', { name: 'mine', sql: 'SELECT 1' }],
      ['GET', '/api/migrations'],
      ['POST', '/api/keys', { name: 'mine', scope: 'read' }],
      ['GET', '/api/keys'],
      ['DELETE', `/api/keys/${keyId}`],
      ['POST', '/api/auth/rotate-key'],
      ['GET', '/api/audit'],
      ['PATCH', '/api/organization', { name: 'mine' }],
      ['DELETE', '/api/organization', { confirm: owner.id }],
    ] as const;
    for (const [method, path, body] of refused) {
      const reply = await service.call(method, path, { key: reader.apiKey, ...(body === undefined ? {} : { body }) });
      expect([path, reply.status, reply.body.code]).toEqual([path, 403, 'forbidden']);
    }
    const write = await service.query(reader, "INSERT INTO orders VALUES (9, 'mine')");
    expect([write.status, write.body.code, write.body.sqlstate]).toEqual([403, 'forbidden', '42501']);
    const me = await service.call('GET', '/api/auth/me', { key: reader.apiKey });
    expect(me.body.key).toMatchObject({ keyId, scope: 'read' });
  });

  it('of the scope data reads and changes rows, also of what is made later, under the rules of the owner', async () => {
    await own.query(`CREATE TABLE members (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text, number bigserial);
      CREATE TABLE owned (who text, body text);
      ALTER TABLE owned ENABLE ROW LEVEL SECURITY;
      CREATE POLICY mine ON owned TO "${owner.id}_data" USING (who = current_setting('app.user_id', true));
      INSERT INTO owned VALUES ('anna', 'hers'), ('bert', 'his')`);
    for (const [name, door] of Object.entries(DOORS)) {
      const run = async (...statements: string[]) => {
        const reply = await door(service, data, statements.length === 1 ? (statements[0] ?? '') : statements);
        expect([name, statements, reply.sqlstate, reply.message]).toEqual([name, statements, '00000', '']);
        return reply.rows;
      };
      await run(`INSERT INTO members (name) VALUES ('${name}')`);
      await run(`UPDATE members SET name = name || '!' WHERE name = '${name}'`);
      expect(await run(`SELECT name FROM members WHERE name = '${name}!'`)).toEqual([[`${name}!`]]);
      await run(`MERGE INTO members m USING (VALUES (1)) AS v (id) ON m.name = '${name}!' WHEN MATCHED THEN DELETE`);
      await run('SELECT 1', 'LOCK TABLE members IN ROW EXCLUSIVE MODE');
      expect(await run(`SELECT (nextval('numbers') > 0 AND double(21) = 42 AND session_user = '${owner.id}_data')::text`)).toEqual([
        ['true'],
      ]);
      expect(await run("SET LOCAL app.user_id = 'anna'", 'SELECT body FROM owned')).toEqual([['hers']]);
      expect(await run('SELECT body FROM owned')).toEqual([]);
      expect(await run("SET LOCAL app.user_id = 'anna'", "UPDATE owned SET body = 'hers' RETURNING body")).toEqual([['hers']]);
      const stolen = await door(service, data, ["SET LOCAL app.user_id = 'anna'", "INSERT INTO owned VALUES ('bert', 'forged')"]);
      expect([name, stolen.sqlstate]).toEqual([name, '42501']);
    }
    if (kind === 'database') {
      await own.query('CREATE SCHEMA data_apart; CREATE TABLE data_apart.things AS SELECT 8 AS id');
      expect((await service.query(data, 'DELETE FROM data_apart.things')).body.rowCount).toBe(1);
    }
    await own.query('DROP TABLE owned');
  });

  it('of the scope data makes neither keys nor migrations, and keeps no replies', async () => {
    const refused = [
      ['POST', '/api/migrations', { name: 'mine', sql: 'SELECT 1' }],
      ['GET', '/api/migrations'],
      ['POST', '/api/keys', { name: 'mine', scope: 'data' }],
      ['GET', '/api/keys'],
      ['PUT', '/api/queries/mine', { sql: 'SELECT 1' }],
      ['POST', '/api/auth/rotate-key'],
      ['GET', '/api/audit'],
      ['POST', '/api/clones', {}],
      ['DELETE', '/api/organization', { confirm: owner.id }],
    ] as const;
    for (const [method, path, body] of refused) {
      const reply = await service.call(method, path, { key: data.apiKey, ...(body === undefined ? {} : { body }) });
      expect([path, reply.status, reply.body.code]).toEqual([path, 403, 'forbidden']);
    }
    const create = await service.query(data, 'CREATE TABLE mine ()');
    expect([create.status, create.body.code, create.body.sqlstate]).toEqual([403, 'forbidden', '42501']);
    for (const [path, body] of [
      ['/api/query', { sql: "INSERT INTO orders VALUES (2, 'two')" }],
      ['/api/transaction', { statements: [{ sql: "INSERT INTO orders VALUES (2, 'two')" }] }],
    ] as const) {
      const reply = await service.call('POST', path, { key: data.apiKey, body, headers: { 'idempotency-key': 'once' } });
      expect([path, reply.status, reply.body.code, reply.body.message]).toEqual([
        path,
        400,
        'invalid_request',
        'Idempotency-Key: a key with the scope data has no table in which replies could be kept',
      ]);
    }
    expect((await own.query('SELECT id FROM orders')).rows).toEqual([{ id: 1 }]);
    for (const path of ['/api/schema', '/api/usage', '/api/insights/queries', '/api/insights/advice', '/api/sessions', '/api/queries'])
      expect([path, (await service.call('GET', path, { key: data.apiKey })).status]).toEqual([path, 200]);
    const statements = async (key: string) => {
      const { body } = await service.call('GET', '/api/insights/queries?limit=100', { key });
      return (body.queries as { sql: string }[]).map(({ sql }) => sql);
    };
    await service.query(data, 'SELECT 1 AS of_data_keys');
    expect(await statements(data.apiKey)).toContainEqual(expect.stringContaining('of_data_keys'));
    expect(await statements(reader.apiKey)).not.toContainEqual(expect.stringContaining('of_data_keys'));
  });

  it('of the scope data gets back nothing that it drops, and reaches nothing that is hidden from it', async () => {
    const guarded = await service.signUp();
    const session = await service.connect(guarded);
    const role = `"${guarded.id}_data"`;
    await session.query('CREATE TABLE shown AS SELECT 1 AS id; CREATE TABLE hidden AS SELECT 1 AS id');
    const key = (await keyOf(guarded, 'data')).organization;
    expect((await service.query(key, 'UPDATE hidden SET id = 2')).status).toBe(200);
    await session.query(`REVOKE ALL ON hidden FROM ${role}; REVOKE DELETE ON shown FROM ${role}`);
    for (const sql of [
      'DROP OWNED BY CURRENT_USER CASCADE',
      'REVOKE ALL ON SCHEMA public FROM CURRENT_USER',
      `REVOKE ALL ON DATABASE "${kind === 'database' ? guarded.id : 'postern_shared'}" FROM CURRENT_USER`,
      "ALTER ROLE CURRENT_USER PASSWORD 'mine'",
      `ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO PUBLIC`,
      `COMMENT ON ROLE ${role} IS 'The organization has not granted it anything yet.'`,
    ]) {
      await attempt(key, sql);
      for (const door of Object.values(DOORS)) {
        for (const closed of ['SELECT * FROM hidden', 'DELETE FROM hidden', 'DELETE FROM shown', 'CREATE TEMPORARY TABLE t (id int)'])
          expect([sql, closed, (await door(service, key, closed)).sqlstate]).toEqual([sql, closed, '42501']);
        expect([sql, (await door(service, key, 'UPDATE shown SET id = 1')).sqlstate]).toEqual([sql, '00000']);
      }
      await keyOf(guarded, 'data');
    }
    await session.query('CREATE TABLE later AS SELECT 1 AS id');
    expect((await service.query(key, 'SELECT * FROM later')).body.sqlstate).toBe('42501');
    await session.end();
    expect((await service.call('DELETE', '/api/organization', { key: guarded.apiKey, body: { confirm: guarded.id } })).status).toBe(200);
    expect((await own.query(`SELECT rolname FROM pg_roles WHERE rolname LIKE '${guarded.id}%'`)).rows).toEqual([]);
  });

  it('sees only its own sessions, and ends those of nobody else', async () => {
    const client = await service.connect(reader);
    const { rows: pids } = await own.query('SELECT pg_backend_pid() AS pid');
    for (const call of ['pg_cancel_backend', 'pg_terminate_backend'])
      await client.query(`SELECT ${call}(${pids[0].pid})`).catch((error: { code?: string }) => expect(error.code).toBe('42501'));
    expect((await own.query('SELECT 1 AS one')).rows).toEqual([{ one: 1 }]);
    if (kind === 'database') {
      const { rows } = await client.query('SELECT DISTINCT usename FROM pg_stat_activity');
      expect(rows).toEqual([{ usename: `${owner.id}_read` }]);
    }
    await client.end();
  });

  it('shares neither prepared statements nor backends with other keys', async () => {
    const sql = 'SELECT session_user::text AS who, count(*)::int AS rows FROM accounts';
    const ask = async (organization: TestOrganization) => (await service.query(organization, sql)).body.rows[0];
    const all = await Promise.all(Array.from({ length: 60 }, (_, n) => ask(n % 2 === 0 ? owner : reader)));
    expect(all.filter((_, n) => n % 2 === 0)).toEqual(Array(30).fill({ who: owner.id, rows: 2 }));
    expect(all.filter((_, n) => n % 2 === 1)).toEqual(Array(30).fill({ who: `${owner.id}_read`, rows: 1 }));
    const clients = await Promise.all(Array.from({ length: 12 }, (_, n) => service.connect(n % 2 === 0 ? owner : reader)));
    const rows = await Promise.all(clients.flatMap((client) => [1, 2, 3].map(() => client.query({ name: 'same', text: sql }))));
    expect(new Set(rows.map(({ rows: [row] }) => `${row.who} ${row.rows}`))).toEqual(new Set([`${owner.id} 2`, `${owner.id}_read 1`]));
    await Promise.all(clients.map((client) => client.end()));
  });

  /** A statement of a reader in a session of its own, and whatever it is answered. */
  const attempt = async (organization: TestOrganization, sql: string) => {
    const client = await service.connect(organization, { options: '-c postern.pool=session' });
    const code = await client.query(sql).then(
      () => '00000',
      (error: { code?: string }) => error.code,
    );
    await client.end();
    return code;
  };

  it('sees nothing that its organization has hidden, whatever it drops or breaks, and whoever makes new sessions and keys', async () => {
    const guarded = await service.signUp();
    const session = await service.connect(guarded);
    const role = `"${guarded.id}_read"`;
    await session.query(`CREATE TABLE seen AS SELECT 1 AS id; CREATE TABLE hidden AS SELECT 'secret' AS body;
      CREATE TABLE partly AS SELECT 1 AS id, 'secret' AS body; CREATE SEQUENCE counter`);
    const apart = kind === 'database';
    if (apart) await session.query('CREATE SCHEMA vault; CREATE TABLE vault.hidden AS SELECT 1 AS id');
    const key = (await readKey(guarded)).organization;
    const hidden = [
      'SELECT * FROM hidden',
      'SELECT * FROM partly',
      'SELECT last_value FROM counter',
      ...(apart ? ['SELECT * FROM vault.hidden'] : []),
    ];
    for (const sql of hidden) expect([sql, (await service.query(key, sql)).status]).toEqual([sql, 200]);

    await session.query(
      `REVOKE SELECT ON hidden FROM ${role}; REVOKE SELECT ON partly FROM ${role}; REVOKE SELECT ON counter FROM ${role}`,
    );
    if (apart) await session.query(`REVOKE USAGE ON SCHEMA vault FROM ${role}`);
    const look = async () => {
      for (const sql of hidden)
        for (const door of Object.values(DOORS)) expect([sql, (await door(service, key, sql)).sqlstate]).toEqual([sql, '42501']);
      expect((await service.query(key, 'SELECT id FROM seen')).body.rows).toEqual([{ id: 1 }]);
    };
    await look();
    const breaks = [
      'DROP OWNED BY CURRENT_USER',
      'DROP OWNED BY CURRENT_USER CASCADE',
      'REVOKE ALL ON ALL TABLES IN SCHEMA public FROM CURRENT_USER',
      'REVOKE ALL ON SCHEMA public FROM CURRENT_USER',
      `REVOKE ALL ON DATABASE "${kind === 'database' ? guarded.id : 'postern_shared'}" FROM CURRENT_USER`,
      "ALTER ROLE CURRENT_USER PASSWORD 'mine'",
      `COMMENT ON ROLE ${role} IS 'The organization has not granted it anything yet.'`,
    ];
    for (const sql of breaks) {
      await attempt(key, sql);
      for (let time = 0; time < 3; time += 1) await look();
    }
    // The columns that are shown are all that is shown. PostgreSQL refuses DROP OWNED then.
    await session.query(`GRANT SELECT (id) ON partly TO ${role}`);
    await attempt(key, 'DROP OWNED BY CURRENT_USER');
    expect((await service.query(key, 'SELECT id FROM partly')).body.rows).toEqual([{ id: 1 }]);
    await look();
    await readKey(guarded);
    await look();
    const another = await startTestService(variables);
    for (const sql of hidden) expect([sql, (await another.query(key, sql)).body.sqlstate]).toEqual([sql, '42501']);
    await another.close();

    // What is hidden in advance stays so too, and is shown again by its owner alone.
    await session.query(`ALTER DEFAULT PRIVILEGES REVOKE SELECT ON TABLES FROM ${role}; CREATE TABLE later AS SELECT 1 AS id`);
    hidden.push('SELECT * FROM later');
    await look();
    await session.query('REVOKE SELECT (id) ON partly FROM PUBLIC');
    await session.query(`REVOKE SELECT (id) ON partly FROM ${role}`);
    await attempt(key, 'DROP OWNED BY CURRENT_USER');
    await readKey(guarded);
    await session.query('CREATE TABLE latest AS SELECT 2 AS id');
    hidden.push('SELECT * FROM latest');
    await look();
    await session.query(
      `ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO ${role}; CREATE TABLE newest AS SELECT 3 AS id; GRANT SELECT ON later TO ${role}`,
    );
    expect((await service.query(key, 'SELECT newest.id, later.id AS later FROM newest, later')).body.rows).toEqual([{ id: 3, later: 1 }]);
    for (const name of ['migrations', 'idempotency_keys']) {
      const table = kind === 'database' ? `postern.${name}` : `public.postern_${name}`;
      expect((await service.query(reader, `SELECT * FROM ${table}`)).body.sqlstate).toBe('42501');
    }
    await session.end();
  });

  it('puts nothing before what a function of its owner uses', async () => {
    const client = await service.connect(reader, { options: '-c postern.pool=session' });
    const traps = [
      'CREATE TEMPORARY TABLE journal (entry text)',
      'CREATE FUNCTION pg_temp.trap() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN DELETE FROM public.orders; RETURN NEW; END $$',
      'CREATE TRIGGER trap BEFORE INSERT ON pg_temp.journal FOR EACH ROW EXECUTE FUNCTION pg_temp.trap()',
    ];
    const codes: (string | undefined)[] = [];
    for (const sql of traps) await client.query(sql).catch(({ code }: { code?: string }) => codes.push(code));
    expect(codes).toEqual(['42501', '42501', '3F000']);
    await client.query("SELECT note_down('two')");
    await client.end();
    expect((await own.query('SELECT * FROM orders')).rows).toEqual([{ id: 1, note: 'one' }]);
    expect((await own.query("SELECT * FROM journal WHERE entry = 'two'")).rows).toHaveLength(1);
  });

  it('creates nothing temporary in a database of an earlier version either', async () => {
    const former = await service.signUp();
    await service.query(former, 'CREATE TABLE seen AS SELECT 1 AS id');
    const key = (await readKey(former)).organization;
    const create = 'CREATE TEMPORARY TABLE mine (id int)';
    const superuser = new pg.Client(inject('clusterUrl'));
    await superuser.connect();
    const database = kind === 'database' ? former.id : 'postern_shared';
    const terminate = `SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE usename = '${former.id}_read'`;
    await superuser.query(
      `GRANT TEMPORARY ON DATABASE "${database}" TO ${kind === 'database' ? `"${former.id}_read"` : 'PUBLIC'}; ${terminate}`,
    );
    // The start of a process takes it away, as it does after an update.
    const another = await startTestService(variables);
    expect(await attempt(key, create)).toBe('42501');
    expect((await another.query(former, create)).status).toBe(200);
    await another.close();
    await superuser.end();
  });

  it.each(['read', 'data'] as const)('leaves no settings for the sessions of other %s keys', async (scope) => {
    const [setting, seeing] = [await keyOf(owner, scope), await keyOf(owner, scope)];
    const database = (await own.query('SELECT current_database() AS name')).rows[0].name;
    const alter = `ALTER ROLE CURRENT_USER IN DATABASE "${database}" SET`;
    const client = await service.connect(setting.organization);
    await client.query(`ALTER ROLE CURRENT_USER SET TimeZone = 'Asia/Tokyo'; ${alter} DateStyle = 'SQL, DMY'; ${alter} row_security = off`);
    await client.end();
    const shown = `SELECT pg_sleep(0.05)::text AS slept, current_setting('TimeZone') AS zone, current_setting('DateStyle') AS style, current_setting('row_security') AS security`;
    // More than there are sessions, so that some are new.
    const clients = await Promise.all(Array.from({ length: 8 }, () => service.connect(seeing.organization)));
    const rows = await Promise.all(clients.map(async (one) => (await one.query(shown)).rows[0]));
    expect(rows).toEqual(Array(8).fill({ slept: '', zone: 'UTC', style: 'ISO, MDY', security: 'on' }));
    await Promise.all(clients.map((one) => one.end()));
    const custom = await service.connect(setting.organization);
    await expect(custom.query(`${alter} app.member = 'mallory'`)).rejects.toMatchObject({ code: '42501' });
    await custom.end();
    const left = `SELECT unnest(setconfig) AS setting FROM pg_db_role_setting WHERE setrole = to_regrole('${owner.id}_${scope}') ORDER BY 1`;
    expect((await own.query(left)).rows).toEqual([{ setting: 'log_min_messages=fatal' }, { setting: 'temp_file_limit=1GB' }]);
  });

  it('waits for no session that the organization has idle for its other role, and counts in its limit', async () => {
    const limited = await startTestService({ POSTERN_PLACEMENT: kind, POSTERN_BACKENDS_PER_TENANT: '2' });
    const both = await limited.signUp();
    await limited.query(both, 'CREATE TABLE seen AS SELECT 1 AS id');
    const made = await limited.call('POST', '/api/keys', { key: both.apiKey, body: { name: 'agent', scope: 'read' } });
    const seeing = { ...both, apiKey: made.body.apiKey };
    const ask = (organization: TestOrganization) => limited.query(organization, 'SELECT id FROM seen, pg_sleep(0.02)');
    const replies = await Promise.all(Array.from({ length: 40 }, (_, n) => ask(n % 2 === 0 ? both : seeing)));
    expect(replies.map(({ status }) => status)).toEqual(Array(40).fill(200));
    const pinned = await Promise.all([1, 2].map(() => limited.connect(both)));
    for (const client of pinned) await client.query('BEGIN');
    const waiting = ask(seeing);
    await pinned[0]?.query('COMMIT');
    expect((await waiting).status).toBe(200);
    await Promise.all(pinned.map((client) => client.end()));
    await limited.close();
  });
});
