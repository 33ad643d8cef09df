'use strict';

// Makes of the console's sources one folder of static files: names with their hashes, and beside each file what it is in brotli and gzip.

const { build } = require('esbuild');
const { mkdirSync, readFileSync, writeFileSync } = require('node:fs');
const { basename, join } = require('node:path');
const { promisify } = require('node:util');
const { brotliCompress, constants, gzip } = require('node:zlib');

const ROOT = join(__dirname, '../..');
const FOLDER = 'http/console';
/** In brotli: of all files together, and of what is loaded before the editor appears: the page, and the SQL screen without it. */
const BUDGET = { totalMaxBytes: 250_000, firstMaxBytes: 40_000 };
const ENTRY = `${FOLDER}/main.tsx`;
/** What is there from the beginning, and what is loaded with the first other screen. */
const [STYLE, SCREENS_STYLE] = [`${FOLDER}/style/console.css`, `${FOLDER}/style/screens.css`];
const FIRST_SCREEN = `${FOLDER}/screens/sql/sql-screen.tsx`;

/**
 * @param outdir where the files go: index.html and assets/
 * @throws Error when they are larger than they may be
 */
async function buildConsole(outdir, budget = BUDGET) {
  const { metafile, outputFiles } = await build({
    absWorkingDir: ROOT,
    entryPoints: [ENTRY, STYLE, SCREENS_STYLE, `${FOLDER}/style/icon.svg`],
    outdir: join(outdir, 'assets'),
    write: false,
    bundle: true,
    splitting: true,
    minify: true,
    format: 'esm',
    target: ['chrome123', 'firefox121', 'safari17.5'],
    jsx: 'automatic',
    jsxImportSource: 'preact',
    // An image is built without the tsconfig.json that this folder's extends.
    tsconfigRaw: '{}',
    loader: { '.svg': 'copy' },
    entryNames: '[name]-[hash]',
    chunkNames: '[name]-[hash]',
    legalComments: 'none',
    metafile: true,
    logLevel: 'warning',
  });
  const page = { path: join(outdir, 'index.html'), contents: Buffer.from(pageOf(metafile.outputs)) };
  mkdirSync(join(outdir, 'assets'), { recursive: true });
  const sizes = new Map(await Promise.all([...outputFiles, page].map(writeFile)));
  checkBudget(sizes, metafile.outputs, budget);
  return metafile;
}

/** The page with the names of its script, style sheets and icon. All of them are relative: a proxy may serve them below a path. */
function pageOf(outputs) {
  const icon = Object.keys(outputs).find((path) => path.endsWith('.svg'));
  return readFileSync(join(__dirname, 'page.html'), 'utf8')
    .replace('{{script}}', basename(outputOf(outputs, ENTRY)))
    .replace('{{style}}', basename(outputOf(outputs, STYLE)))
    .replace('{{screens-style}}', basename(outputOf(outputs, SCREENS_STYLE)))
    .replace('{{icon}}', basename(icon));
}

/** Writes a file and its compressed forms. @returns its name, and its size in brotli */
async function writeFile({ path, contents }) {
  const bytes = Buffer.from(contents);
  const [br, gz] = await Promise.all([
    promisify(brotliCompress)(bytes, { params: { [constants.BROTLI_PARAM_SIZE_HINT]: bytes.length } }),
    promisify(gzip)(bytes, { level: 9 }),
  ]);
  writeFileSync(path, bytes);
  writeFileSync(`${path}.br`, br);
  writeFileSync(`${path}.gz`, gz);
  return [basename(path), br.length];
}

function checkBudget(sizes, outputs, { totalMaxBytes, firstMaxBytes }) {
  const sum = (names) => names.reduce((bytes, name) => bytes + (sizes.get(name) ?? 0), 0);
  const total = sum([...sizes.keys()]);
  const scripts = new Set([ENTRY, FIRST_SCREEN].flatMap((source) => withImports(outputs, outputOf(outputs, source))));
  const isFirst = (name) => !name.endsWith('.js') && name !== basename(outputOf(outputs, SCREENS_STYLE));
  const first = sum([...[...scripts].map((path) => basename(path)), ...[...sizes.keys()].filter(isFirst)]);
  for (const [what, bytes, max] of [
    ['all of the console', total, totalMaxBytes],
    ['what is loaded before the editor appears', first, firstMaxBytes],
  ]) {
    if (bytes > max) throw new Error(`${what} has ${bytes} bytes in brotli, and may have ${max} (http/console/build.cjs)`);
  }
}

/** The file that is made from this source. */
function outputOf(outputs, source) {
  return Object.keys(outputs).find((path) => outputs[path].entryPoint === source);
}

/** The file, and those that it imports; not those that it loads later. */
function withImports(outputs, path) {
  if (path === undefined) return [];
  const imports = outputs[path].imports.filter(({ kind, path: imported }) => kind === 'import-statement' && imported in outputs);
  return [path, ...imports.flatMap((one) => withImports(outputs, one.path))];
}

module.exports = { buildConsole };

if (require.main === module) {
  const outdir = join(ROOT, 'dist/console');
  void buildConsole(outdir);
}
