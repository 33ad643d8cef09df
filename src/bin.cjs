#!/usr/bin/env node
'use strict';

// Every Node can parse this file, so that one that is too old says so in one line.

var NEEDED = 20;

if (Number(process.versions.node.split('.')[0]) < NEEDED) {
  process.stderr.write(`postern: it needs Node ${NEEDED} or later; this is ${process.versions.node}\n`);
  process.exit(1);
}
require('./launch.cjs');
