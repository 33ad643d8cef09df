import { createHash } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import { recordInParts, recordStatement, recordText, StreamedRecord } from '../../../src/catalog/audit/records.ts';
import { redactPasswords, redactSecrets } from '../../../src/syntax/redaction.ts';

describe('password literals', () => {
  test.each([
    [`ALTER ROLE bob PASSWORD 'hunter2'`, `ALTER ROLE bob PASSWORD '***'`],
    [`alter role bob encrypted password'hunter2' valid until 'infinity'`, `alter role bob encrypted password'***' valid until '***'`],
    [`CREATE USER bob PASSWORD E'hunt\\'er2' LOGIN`, `CREATE USER bob PASSWORD '***' LOGIN`],
    [`CREATE USER bob PASSWORD E'hunter\\\\' LOGIN`, `CREATE USER bob PASSWORD '***' LOGIN`],
    [`CREATE USER bob PASSWORD 'hun''ter2' LOGIN`, `CREATE USER bob PASSWORD '***' LOGIN`],
    [`CREATE USER bob PASSWORD U&'hun\\0074er2' LOGIN`, `CREATE USER bob PASSWORD '***' LOGIN`],
    [`CREATE USER bob PASSWORD $$hunter2$$ LOGIN`, `CREATE USER bob PASSWORD '***' LOGIN`],
    [`CREATE USER bob PASSWORD $x$hunt$$er2$x$ LOGIN`, `CREATE USER bob PASSWORD '***' LOGIN`],
    [`create user bob password /* is */ 'hunter2' -- hunter2`, `create user bob password   '***'  `],
    [`create user "PASSWORD 'x" password 'hunter2'`, `create user "PASSWORD 'x" password '***'`],
    [
      `update users set password_hash = crypt('hunter2', gen_salt('bf')) where id = 7`,
      `update users set password_hash = crypt('***', gen_salt('***')) where id = 7`,
    ],
    [`select format('alter role bob password %L', 'hunter2')`, `select format('***', '***')`],
    [`select dblink_connect('host=x password=hunter2')`, `select dblink_connect('***')`],
    [
      `do $$ declare p text := 'hunter2'; begin execute 'alter role bob password ' || quote_literal(p); end $$`,
      `do $$ declare p text := '***'; begin execute '***' || quote_literal(p); end $$`,
    ],
    [
      `create function f() returns void language sql as $f$ alter role bob password $$hunter2$$ $f$`,
      `create function f() returns void language sql as $f$ alter role bob password '***' $f$`,
    ],
    [`alter role bob password "hunter2" login`, `alter role bob password '***' login`],
    [`alter role bob password"hun""ter2`, `alter role bob password'***'`],
    [`alter role bob password 'hunter2`, `alter role bob password '***'`],
    [`alter role bob password $$hunter2`, `alter role bob password '***'`],
    // With standard_conforming_strings off the literal goes on behind the quote.
    [`alter role bob password 'hun\\'ter2' login`, `alter role bob password '***'`],
  ])('are masked: %s', (sql, recorded) => {
    expect(redactPasswords(sql)).toBe(recorded);
  });

  test('are all that is masked', () => {
    const sql = `insert into t values ('a', $$b$$) -- c`;
    expect(redactPasswords(sql)).toBe(sql);
    expect(redactPasswords(`select password, "x" from users where id = $1 and a<>b`)).toBe(
      `select password, "x" from users where id = $1 and a<>b`,
    );
  });

  test('do not hide behind comments that nest', () => {
    expect(redactPasswords(`select /* a /* b */ ' */ password 'hunter2'`)).toBe(`select   password '***'`);
  });

  test('are masked in code however deep it stands', () => {
    const nested = (depth: number) => {
      const tags = Array.from({ length: depth }, (_, n) => `$a${n}$`);
      return `${tags.map((tag) => `do ${tag}`).join('')} password 'hunter2' ${tags.reverse().join('')}`;
    };
    expect(redactPasswords(nested(20))).toBe(nested(20).replace('hunter2', '***'));
    for (const depth of [21, 30_000]) expect(redactPasswords(nested(depth))).not.toContain('hunter2');
  });

  test('of any length take no time to mask', () => {
    const sql = `alter role bob password '${`x''\\`.repeat(1_000_000)}'`;
    expect(redactPasswords(sql)).toBe(`alter role bob password '***'`);
    expect(redactPasswords(`password ${'/*'.repeat(500_000)}`)).toBe('password  ');
  });
});

const KEY = `pst_${'4fT9aB'.repeat(6)}`;

describe('secrets', () => {
  test.each([
    [`select dblink('postgres://bob:hunter2@db:5432/x')`, `select dblink('postgres://bob:***@db:5432/x')`],
    [`-- amqp://:hunter2@mq http://a:hunter2@b`, `-- amqp://:***@mq http://a:***@b`],
    [`copy t to program 'curl https://u:hun:t''er2@h/'`, `copy t to program 'curl https://u:***@h/'`],
    [`select '${KEY}', ${KEY}x`, `select 'pst_***', pst_***`],
    [`create server s options (key '${KEY}', password 'x')`, `create server s options (key '***', password '***')`],
    [`/* ${KEY} */ select "http://a:hunter2@b"`, `/* pst_*** */ select "http://a:***@b"`],
  ])('are masked wherever they stand: %s', (sql, recorded) => {
    expect(redactSecrets(sql)).toBe(recorded);
  });

  test('are all that is masked', () => {
    for (const sql of [`select 'http://a/b:c@d', 'x@y'`, `select pst_id, 'pst_short' from t`, `select '12:30'::time, a::text, @ -5`]) {
      expect(redactSecrets(sql)).toBe(sql);
    }
  });
});

describe('a recorded statement', () => {
  test('is masked, then hashed whole, then cut', () => {
    const long = `select '${'x'.repeat(3_000)}'`;
    expect(recordStatement({ sql: long, command: 'SELECT', paramCount: 0 })).toEqual({
      sql: long.slice(0, 2_000),
      sqlHash: createHash('sha256').update(long).digest('hex'),
      command: 'SELECT',
      paramCount: 0,
    });
    expect(recordStatement({ sql: `alter role bob password 'hunter2'` })).toEqual({
      sql: `alter role bob password '***'`,
      sqlHash: createHash('sha256').update(`alter role bob password '***'`).digest('hex'),
      command: null,
      paramCount: null,
    });
  });

  test.each([
    ['behind', (filler: string) => `select 'hunter2', ${filler} password`],
    ['before', (filler: string) => `select /* password */ 'hunter2', ${filler}`],
    ['where its end is not looked for', (filler: string) => `select 'hunter2${filler}', password`],
    ['in code', (filler: string) => `do $$ begin perform 'hunter2', ${filler}; execute 'password'; end $$`],
  ])('is masked where a literal of a long text may be a password: the word is %s', (_name, written) => {
    const { sql, sqlHash } = recordStatement({ sql: written("'',".repeat(100_000)) });
    expect(sql).not.toContain('hunter2');
    expect(sql.slice(0, 60)).toContain("'***'");
    expect(sql.length).toBeLessThanOrEqual(2_000);
    // What is hashed holds no literal, so that it tells nothing of one.
    expect(recordStatement({ sql: written("'',".repeat(100_000)).replace('hunter2', 'hunter3') }).sqlHash).toBe(sqlHash);
  });

  test('is cut inside of whatever stands at the end of what is looked at, and tells no more than before', () => {
    for (const literal of [`'hunter2'`, `E'hunter2'`, `$pw$hunter2$pw$`, `/* hunter2 */`, `U&'hunter2'`]) {
      for (let at = 65_536 - literal.length; at <= 65_536; at += 1) {
        const start = `password${' '.repeat(at - 8)}`;
        const hashes = ['hunter2', 'letmein'].map((word) => recordStatement({ sql: start + literal.replace('hunter2', word) }).sqlHash);
        expect(new Set(hashes).size).toBe(1);
      }
    }
  });

  test('begins behind white space and comments, and is hashed with them', () => {
    const sql = `/* ${'x'.repeat(5_000)} */ -- y\n grant select on t to bob`;
    expect(recordText(sql)).toEqual({ sql: 'grant select on t to bob', sqlHash: createHash('sha256').update(sql).digest('hex') });
    expect(recordText('-- only this').sql).toBe('-- only this');
  });

  test.each([
    `/* ${'x'.repeat(500)} */ create table t (a text default 'é')`,
    `create view v as select '${KEY}' -- ${'x'.repeat(500)}`,
    `select 'hunter2', ${'x, '.repeat(200)} password`,
    `${' '.repeat(300)}create view v as select 'http://a:hunter2@b'`,
  ])('that passes in pieces is recorded as at once: %.20s', (sql) => {
    const text = Buffer.from(sql).toString('latin1');
    for (let cut = 0; cut < text.length; cut += 1) {
      const record = new StreamedRecord();
      for (const piece of [text.slice(0, cut), text.slice(cut, cut + 10), text.slice(cut + 10)]) record.add(piece);
      expect([cut, record.recorded]).toEqual([cut, recordText(sql)]);
    }
  });

  test.each([
    `/* ${'😀'.repeat(100_000)} */ grant select on t to bob`,
    `x${'😀'.repeat(100_000)}`,
    `${' '.repeat(70_000)}select 'hunter2' ${'x'.repeat(70_000)} password`,
    `select '${'é'.repeat(200_000)}'`,
  ])('that is long is recorded in parts as at once: %.10s', async (sql) => {
    expect(await recordInParts(sql)).toEqual(recordText(sql));
  });
});
