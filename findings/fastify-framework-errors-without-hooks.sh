#!/usr/bin/env bash
# Fastify's frameworkErrors replies run no hook, and a path parameter that is
# too long is answered 414 and never reaches the not-found handler.
#
# Seen with fastify 5.12.8 on 2026-11-27. A malformed percent escape or a
# parameter longer than maxParamLength is handed to frameworkErrors with a
# Request and a Reply. onRequest, onSend and onResponse, which run for an
# unknown path too, do not run, before it or for the reply that it sends: no
# header of an onSend hook, no line in a log or metric kept by onResponse.
#
# The package's docs/Reference/Server.md: under maxParamLength, "if the maximum
# length limit is reached, the not found route will be invoked"; under
# frameworkErrors, "only FST_ERR_BAD_URL and FST_ERR_ASYNC_CONSTRAINT are
# implemented at present", and no word on hooks. Lifecycle.md puts onRequest
# right after routing and logging, and onSend before the response.
set -euo pipefail
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cd "$tmp"
npm i --prefix "$tmp" --silent --no-audit --no-fund fastify@5.12.8
cat >run.mjs <<'JS'
import assert from 'node:assert'
import Fastify from 'fastify'

const ran = []
const build = (options) => {
  const app = Fastify({ routerOptions: { maxParamLength: 10 }, ...options })
  for (const hook of ['onRequest', 'onSend', 'onResponse']) app.addHook(hook, async () => void ran.push(hook))
  app.setNotFoundHandler((request, reply) => {
    ran.push('notFound')
    reply.code(404).send()
  })
  app.get('/items/:id', async () => 'item')
  return app
}
const ask = async (app, url) => {
  ran.length = 0
  const { statusCode } = await app.inject(url)
  await new Promise(setImmediate)
  console.log(url, statusCode, ran.join(', '))
  return [statusCode, ...ran]
}

console.log('fastify', build().version)
const plain = build()
assert.deepEqual(await ask(plain, '/nowhere'), [404, 'onRequest', 'notFound', 'onSend', 'onResponse'])
assert.deepEqual(await ask(plain, '/items/12345678901'), [414])

console.log('with frameworkErrors:')
const own = build({
  frameworkErrors(error, request, reply) {
    ran.push(error.code)
    reply.code(400).send({ code: error.code })
  },
})
assert.deepEqual(await ask(own, '/items/1'), [200, 'onRequest', 'onSend', 'onResponse'])
assert.deepEqual(await ask(own, '/items/12345678901'), [400, 'FST_ERR_MAX_PARAM_LENGTH'])
assert.deepEqual(await ask(own, '/items/%zz'), [400, 'FST_ERR_BAD_URL'])
JS
NODE_NO_WARNINGS=1 timeout 60 node run.mjs
