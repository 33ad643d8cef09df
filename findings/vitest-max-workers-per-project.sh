#!/usr/bin/env bash
# Vitest runs no test at all when two projects set different maxWorkers, unless
# the one that differs sets 1 and is isolated.
#
# Seen with vitest 4.1.12 on 2026-11-27. Two projects with maxWorkers 2 and 3
# end the run with exit code 1, "no tests" and the error that they "have
# different 'maxWorkers' but same 'sequence.groupOrder'"; neither set a
# groupOrder. 1 and 3 pass. 1 with isolate: false, and 3, is refused again.
#
# The documentation: Config, maxWorkers, names no condition. Config,
# sequence.groupOrder: "if you don't set this option, all projects run in
# parallel". Recipes, "Parallel and Sequential Test Files", gives one project of
# two fileParallelism: false, which it calls a shorthand for maxWorkers: 1: that
# works because of the exception. vitest-dev/vitest#8855 is about the message.
set -euo pipefail
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cd "$tmp"
npm i --prefix "$tmp" --silent --no-audit --no-fund vitest@4.1.12
cat >vitest.config.mjs <<'JS'
const [first, second] = JSON.parse(process.env.PROJECTS)
const project = (name, options) => ({ test: { name, include: [`${name}.test.mjs`], ...options } })
export default { test: { projects: [project('first', first), project('second', second)] } }
JS
for name in first second; do
  echo "import { test } from 'vitest'; test('passes', () => {})" >$name.test.mjs
done
export NO_COLOR=1

# The projects, the exit code, and a text that the run prints.
expect() {
  local code=0 output
  output=$(PROJECTS=$1 timeout 120 node_modules/.bin/vitest run 2>&1) || code=$?
  echo "$1: exit code $code"
  grep -E "v4\.|^Error: |^ *(Test Files|Tests) " <<<"$output"
  [ "$code" = "$2" ] && grep -qF "$3" <<<"$output"
}
error="have different 'maxWorkers' but same 'sequence.groupOrder'"
expect '[{"maxWorkers":2},{"maxWorkers":3}]' 1 "$error"
expect '[{"maxWorkers":1},{"maxWorkers":3}]' 0 '2 passed'
expect '[{"maxWorkers":1,"isolate":false},{"maxWorkers":3}]' 1 "$error"
