import { createHash } from 'node:crypto';
import type { FastifyInstance } from 'fastify';
import { shareCompressed } from '../compression.ts';
import { inlined, type OpenApiDocument } from '../docs/openapi.ts';
import { SCRIPT } from '../docs/page-script.ts';
import { type Frame, type ReferenceText, referenceTexts, renderMarkdown, renderPage, STYLE } from '../docs/pages.ts';
import { referencePage } from '../docs/reference-page.ts';
import { JSON_TYPE, MARKDOWN_TYPE, prefersHtml } from '../headers.ts';
import type { RouteContext } from '../operation.ts';

/**
 * The description of the API: `/api/openapi.json` for programs, `/docs` for people; and the reference texts below `/docs`, as pages
 * for browsers and as Markdown for others. Each is made once.
 */
export function documentationRoutes(
  app: FastifyInstance,
  document: OpenApiDocument,
  { connection, config }: Pick<RouteContext, 'connection' | 'config'>,
): void {
  // Buffers, so that all replies share the same memory.
  const json = shareCompressed(Buffer.from(JSON.stringify(document)));
  const texts = referenceTexts();
  // The wire door's port is known only after listening.
  const pages = madeOnce(() =>
    pagesOf(document, texts, { chapters: texts, wire: { host: config.POSTERN_PUBLIC_HOST, port: connection(undefined).port } }),
  );
  const headers = { 'content-security-policy': pagePolicy(), 'content-type': 'text/html; charset=utf-8' };
  app.get('/api/openapi.json', async (_request, reply) => reply.type(JSON_TYPE).send(json));
  app.get('/docs', async (_request, reply) => reply.headers(headers).send(pages().get('/docs')));
  for (const { path, markdown } of texts) {
    const bytes = shareCompressed(Buffer.from(markdown));
    app.get(path, async (request, reply) => {
      reply.header('vary', [reply.getHeader('vary'), 'accept'].flat().filter(Boolean).join(', '));
      if (prefersHtml(request.headers.accept)) return reply.headers(headers).send(pages().get(path));
      return reply.type(`${MARKDOWN_TYPE}; charset=utf-8`).send(bytes);
    });
  }
  app.get('/', async (_request, reply) => reply.redirect('/docs'));
}

/** The pages' own style and script, by their hashes, and calls to the server that they came from. */
function pagePolicy(): string {
  const hashOf = (text: string) => `'sha256-${createHash('sha256').update(text).digest('base64')}'`;
  return `default-src 'none'; style-src ${hashOf(STYLE)}; script-src ${hashOf(SCRIPT)}; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'`;
}

function pagesOf(document: OpenApiDocument, texts: readonly ReferenceText[], frame: Frame): ReadonlyMap<string, Buffer> {
  const chapters = texts.map(({ path, title, markdown }) => {
    const { body, headings } = renderMarkdown(markdown);
    return {
      path,
      title,
      main: body,
      menu: [{ title: 'On this page', links: headings.map(({ id, text }) => ({ href: `#${id}`, text })) }],
    };
  });
  return new Map([referencePage(inlined(document)), ...chapters].map((page) => [page.path, shareCompressed(renderPage(page, frame))]));
}

function madeOnce<T>(make: () => T): () => T {
  let made: T | undefined;
  return () => {
    made ??= make();
    return made;
  };
}
