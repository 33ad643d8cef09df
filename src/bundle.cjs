'use strict';

// Makes of the service and the packages that it needs one file, bundle/postern.mjs, for the package; and bundle/console/ beside it.

const { buildSync } = require('esbuild');
const { readdirSync, readFileSync, rmSync, writeFileSync } = require('node:fs');
const { join } = require('node:path');
const { buildConsole } = require('../http/console/build.cjs');

const ROOT = join(__dirname, '..');
/** Packages that others use if they are installed. */
const OPTIONAL = ['bufferutil', 'pg-native', 'utf-8-validate'];
/** CommonJS modules in the bundle load Node's own modules by it. */
const REQUIRE = `import { createRequire as requireFrom } from 'node:module'; const require = requireFrom(import.meta.url);`;

async function bundle() {
  rmSync(join(ROOT, 'bundle'), { recursive: true, force: true });
  const { metafile } = buildSync({
    absWorkingDir: ROOT,
    entryPoints: ['src/command.ts'],
    outfile: 'bundle/postern.mjs',
    bundle: true,
    platform: 'node',
    format: 'esm',
    target: 'node20',
    // The image has no tsconfig.json.
    tsconfigRaw: '{}',
    external: OPTIONAL,
    banner: { js: REQUIRE },
    legalComments: 'none',
    metafile: true,
    logLevel: 'warning',
  });
  const console = await buildConsole(join(ROOT, 'bundle', 'console'));
  const inputs = [...Object.keys(metafile.inputs), ...Object.keys(console.inputs)];
  writeFileSync(join(ROOT, 'bundle', 'LICENSES.txt'), licenses(packagesIn(inputs)));
}

/** The folders of the packages that these files are from. */
function packagesIn(files) {
  const folders = files.flatMap((file) => /^(?:.*\/)?node_modules\/(?:@[^/]+\/)?[^/]+(?=\/)/.exec(file)?.[0] ?? []);
  return [...new Set(folders)].sort();
}

/** What the packages' licenses ask for: their texts go where their code goes. */
function licenses(folders) {
  return folders
    .map((folder) => {
      const { name, version, license } = JSON.parse(readFileSync(join(ROOT, folder, 'package.json'), 'utf8'));
      const file = readdirSync(join(ROOT, folder)).find((entry) => /^licen[cs]e/i.test(entry));
      const text = file === undefined ? '' : `\n${readFileSync(join(ROOT, folder, file), 'utf8').trim()}\n`;
      return `${name} ${version} (${license})\n${text}`;
    })
    .join(`\n${'-'.repeat(80)}\n\n`);
}

void bundle();
