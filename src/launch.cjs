'use strict';

const { join } = require('node:path');
const { build, compiler, isCurrent } = require('./build.cjs');

/** Runs the command line: compiled, or as it is where nothing can compile it and Node takes the types out itself. */
function start() {
  if (isCurrent() || compiler() !== undefined) {
    const status = build();
    if (status === 0) return import('../dist/src/command.js');
    process.exit(status);
  }
  if (process.features.typescript) return import(join(__dirname, 'command.ts'));
  process.stderr.write(
    'postern: it is not compiled, and the compiler is not installed: run `npm ci` without --omit=dev, or use Node 22.18 or later\n',
  );
  process.exit(1);
}

void start();
