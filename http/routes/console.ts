import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { extname } from 'node:path';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { Config } from '../../src/config.ts';
import { ServiceError } from '../../src/errors.ts';
import { PACKAGE_FOLDER } from '../../src/runtime/package-folder.ts';
import { shareCompressed } from '../compression.ts';

interface StaticFile {
  readonly type: string;
  readonly bytes: Buffer;
}

const TYPES: Readonly<Record<string, string>> = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.svg': 'image/svg+xml',
};

/**
 * Nothing from elsewhere, no inline script or style sheet, and no text that becomes a script. The editor is in a shadow root with style
 * sheets made by script, which no policy forbids; browsers write `style` attributes where text is edited.
 */
const POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "style-src-attr 'unsafe-inline'",
  "connect-src 'self'",
  "img-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
  "require-trusted-types-for 'script'",
].join('; ');

const PAGE_HEADERS = {
  'content-security-policy': POLICY,
  'cross-origin-opener-policy': 'same-origin',
  'referrer-policy': 'no-referrer',
};

/** The names of files have their hashes. */
const FOREVER = { 'cache-control': 'public, max-age=31536000, immutable' };

/**
 * The console: a page at `/console`, and its files. It calls the API like any other client. All its URLs are relative, so that a proxy
 * may serve it below another path.
 */
export function consoleRoutes(app: FastifyInstance, { POSTERN_CONSOLE }: Pick<Config, 'POSTERN_CONSOLE'>): void {
  if (POSTERN_CONSOLE === 'off') return;
  const folder = consoleFolder();
  const page = folder && readStaticFile(folder, 'index.html');
  const assets = new Map(folder === undefined ? [] : readAssets(new URL('assets/', folder)));
  app.get('/console', async (_request, reply) => sendStaticFile(reply.headers(PAGE_HEADERS), built(page)));
  // Relative to this one, the page's URLs would be others.
  app.get('/console/', async (_request, reply) => reply.redirect('../console'));
  app.get('/console/assets/:name', async (request, reply) => {
    const { name } = request.params as { readonly name: string };
    const asset = assets.get(name);
    if (asset === undefined) throw new ServiceError('not_found', 'the console of this version has no such file: load the page again');
    return sendStaticFile(reply.headers(FOREVER).headers(varyOf(request)), asset);
  });
}

/** In the package it is beside the one file with the service; otherwise where `npm run build` has put it. */
function consoleFolder(): URL | undefined {
  const folders = [new URL('console/', import.meta.url), new URL('dist/console/', PACKAGE_FOLDER)];
  return folders.find((folder) => existsSync(new URL('index.html', folder)));
}

function readAssets(folder: URL): [string, StaticFile][] {
  const names = readdirSync(folder).filter((name) => extname(name) in TYPES);
  return names.map((name) => [name, readStaticFile(folder, name)]);
}

/** The build has compressed it already. */
function readStaticFile(folder: URL, name: string): StaticFile {
  const read = (file: string) => readFileSync(new URL(file, folder));
  return { type: TYPES[extname(name)] ?? '', bytes: shareCompressed(read(name), { br: read(`${name}.br`), gzip: read(`${name}.gz`) }) };
}

function built(page: StaticFile | undefined): StaticFile {
  if (page !== undefined) return page;
  throw new ServiceError('not_found', 'the console is not built', { hint: '`npm run build` builds it.' });
}

/** What caches have to know of a reply that was not compressed because nobody has asked for that. */
function varyOf({ headers }: FastifyRequest): Readonly<Record<string, string>> {
  return headers['accept-encoding'] === undefined ? { vary: 'Accept-Encoding' } : {};
}

function sendStaticFile(reply: FastifyReply, { type, bytes }: StaticFile): FastifyReply {
  return reply.type(type).send(bytes);
}
