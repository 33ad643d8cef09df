'use strict';

// Compiles the service into dist/, unless that has been done since the last change.

const { spawnSync } = require('node:child_process');
const { existsSync, readdirSync, statSync, utimesSync, writeFileSync } = require('node:fs');
const { dirname, join } = require('node:path');

const ROOT = join(__dirname, '..');
const SOURCES = ['src', 'proxy', 'http', 'test/bench', 'test/attacks/stalls', 'tsconfig.json', 'package-lock.json'];
/** Its modification time is when the last build began. */
const STAMP = join(ROOT, 'dist', '.built');

/** When anything in it was changed last, in milliseconds. A folder changes when a file in it is added or removed. */
function changedAt(path) {
  const stat = statSync(path);
  if (!stat.isDirectory()) return stat.mtimeMs;
  return Math.max(stat.mtimeMs, ...readdirSync(path).map((name) => changedAt(join(path, name))));
}

function isCurrent() {
  if (!existsSync(STAMP)) return false;
  const builtAt = statSync(STAMP).mtimeMs;
  // An image is built without the tests.
  return SOURCES.map((source) => join(ROOT, source)).every((path) => !existsSync(path) || changedAt(path) < builtAt);
}

/** @returns undefined where only production dependencies are installed */
function compiler() {
  try {
    return join(dirname(require.resolve('typescript/package.json')), 'bin', 'tsc');
  } catch {
    return undefined;
  }
}

/** @returns the compiler's exit status; 0 where nothing had to be done */
function build() {
  if (isCurrent()) return 0;
  const began = new Date();
  const { status } = spawnSync(process.execPath, [compiler(), '-p', join(ROOT, 'src')], { stdio: 'inherit' });
  if (status === 0) {
    writeFileSync(STAMP, '');
    utimesSync(STAMP, began, began);
  }
  return status ?? 1;
}

module.exports = { build, compiler, isCurrent };

if (require.main === module) process.exit(build());
