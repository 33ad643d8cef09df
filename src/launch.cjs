'use strict';

const { accessSync, constants, existsSync } = require('node:fs');
const { join } = require('node:path');
const { setFlagsFromString } = require('node:v8');

// docker/README.md says why, under "Memory". The other option there has no effect after the start.
setFlagsFromString('--no-allocation-site-pretenuring');

/** Runs the command line: the package's one file, or what is compiled from the sources. */
function start() {
  return existsSync(join(__dirname, 'command.ts')) ? startFromSources() : import('../bundle/postern.mjs');
}

/** Compiled, or as they are where nothing can be written and Node takes the types out itself. */
async function startFromSources() {
  const { build, canBuild, isBuilt, isCurrent } = require('./build.cjs');
  if (isCurrent()) return import('../dist/src/command.js');
  if (canBuild() && isWritable()) {
    const status = await build();
    if (status === 0) return import('../dist/src/command.js');
    process.exit(status);
  }
  if (isBuilt()) {
    process.stderr.write('postern: what runs is older than its sources, which cannot be compiled here: run `npm run build`\n');
    return import('../dist/src/command.js');
  }
  if (canBuild() && process.features.typescript) return import('./command.ts');
  process.stderr.write('postern: it is not compiled, and cannot be here: run `npm ci && npm run build`\n');
  process.exit(1);
}

function isWritable() {
  try {
    accessSync(join(__dirname, '..'), constants.W_OK);
    return true;
  } catch {
    return false;
  }
}

void start();
