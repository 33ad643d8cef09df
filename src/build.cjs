'use strict';

// Compiles the service into dist/, unless that has been done since the last change.

const { spawn } = require('node:child_process');
const { once } = require('node:events');
const { existsSync, readdirSync, renameSync, rmSync, statSync, utimesSync, writeFileSync } = require('node:fs');
const { constants } = require('node:os');
const { join } = require('node:path');

const ROOT = join(__dirname, '..');
const DIST = join(ROOT, 'dist');
const COMPILER = join(ROOT, 'node_modules', 'typescript', 'bin', 'tsc');
const CONSOLE = join(ROOT, 'http', 'console', 'build.cjs');
const SOURCES = [
  'src',
  'proxy',
  'http',
  'test/bench',
  'test/support',
  'test/house',
  'test/attacks/stalls',
  'tsconfig.json',
  'package-lock.json',
];
/** The service's sources, and the console's. */
const SOURCE = /\.(?:tsx?|json|css|html|svg|cjs)$/;
/** Its modification time is when the last build began. */
const STAMP = '.built';
const SIGNALS = ['SIGHUP', 'SIGINT', 'SIGTERM'];
const TAKEN = new Set(['EEXIST', 'ENOTEMPTY']);

/** When the sources in it were changed last, in milliseconds. A folder changes when a file in it is added or removed. */
function changedAt(path) {
  const stat = statSync(path);
  if (!stat.isDirectory()) return SOURCE.test(path) ? stat.mtimeMs : 0;
  return Math.max(stat.mtimeMs, ...readdirSync(path).map((name) => changedAt(join(path, name))));
}

function isCurrent() {
  if (!existsSync(join(DIST, STAMP))) return false;
  const builtAt = statSync(join(DIST, STAMP)).mtimeMs;
  // An image is built without the tests.
  return SOURCES.map((source) => join(ROOT, source)).every((path) => !existsSync(path) || changedAt(path) < builtAt);
}

/** Whether there is something to run, current or not. */
const isBuilt = () => existsSync(join(DIST, 'src', 'command.js'));

/** Only production dependencies have no compiler. */
const canBuild = () => existsSync(COMPILER);

/**
 * Compiles into a folder of its own, which then takes the place of dist/: two that start at the same time compile both, and neither
 * runs what is half written.
 * @returns the exit status; 0 where nothing had to be done
 */
async function build() {
  if (isCurrent()) return 0;
  if (!canBuild()) {
    process.stderr.write('postern: the compiler is not installed: run `npm ci` without --omit=dev\n');
    return 1;
  }
  removeLeftovers();
  const began = new Date();
  const folder = `${DIST}.${process.pid}`;
  try {
    const failed = (await Promise.all([compile(folder), buildConsole(join(folder, 'console'))])).find((status) => status !== 0);
    if (failed !== undefined) return failed;
    writeFileSync(join(folder, STAMP), '');
    utimesSync(join(folder, STAMP), began, began);
    replaceDist(folder);
    return 0;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** @returns the exit status; after a signal what a shell makes of it. Then the compiler has ended too. */
async function compile(folder) {
  // The compiler starts another process. Both are in a group of their own, which a signal ends as a whole.
  const compiler = spawn(process.execPath, [COMPILER, '-p', join(ROOT, 'src'), '--outDir', folder], { stdio: 'inherit', detached: true });
  let received;
  const stop = (signal) => {
    received = signal;
    try {
      process.kill(-compiler.pid, 'SIGKILL');
    } catch {
      // It has just ended.
    }
  };
  for (const signal of SIGNALS) process.on(signal, stop);
  try {
    const [status] = await once(compiler, 'exit');
    return received === undefined ? (status ?? 1) : 128 + constants.signals[received];
  } finally {
    for (const signal of SIGNALS) process.off(signal, stop);
  }
}

/** @returns the exit status */
async function buildConsole(folder) {
  try {
    await require(CONSOLE).buildConsole(folder);
    // Its process would stay as long as the service that is started after the build.
    await require('esbuild').stop();
    return 0;
  } catch (error) {
    process.stderr.write(`postern: the console cannot be built: ${error.message}\n`);
    return 1;
  }
}

/** Removes what builds have left behind that were killed. */
function removeLeftovers() {
  for (const name of readdirSync(ROOT)) {
    const pid = Number(/^dist\.(\d+)/.exec(name)?.[1]);
    if (pid > 0 && !isRunning(pid)) rmSync(join(ROOT, name), { recursive: true, force: true });
  }
}

function isRunning(pid) {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return error.code === 'EPERM';
  }
}

function replaceDist(folder) {
  const former = `${folder}.former`;
  for (;;) {
    try {
      if (existsSync(DIST)) renameSync(DIST, former);
      renameSync(folder, DIST);
      return;
    } catch (error) {
      // Another build has put its own there meanwhile, or taken the former one away.
      if (!TAKEN.has(error.code) && error.code !== 'ENOENT') throw error;
    } finally {
      rmSync(former, { recursive: true, force: true });
    }
  }
}

module.exports = { build, canBuild, isBuilt, isCurrent };

if (require.main === module) {
  void build().then((status) => process.exit(status));
}
