'use strict';

const { accessSync, constants } = require('node:fs');
const { join } = require('node:path');
const { build, canBuild, isBuilt, isCurrent } = require('./build.cjs');

/** Runs the command line: compiled, or as it is where nothing can compile it and Node takes the types out itself. */
function start() {
  if (isCurrent()) return import('../dist/src/command.js');
  if (canBuild() && isWritable()) {
    const status = build();
    if (status === 0) return import('../dist/src/command.js');
    process.exit(status);
  }
  if (isBuilt()) {
    process.stderr.write('postern: what runs is older than its sources, which cannot be compiled here: run `npm run build`\n');
    return import('../dist/src/command.js');
  }
  if (process.features.typescript) return import('./command.ts');
  process.stderr.write('postern: it is not compiled, and cannot be here: run `npm ci && npm run build`, or use Node 22.18 or later\n');
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
