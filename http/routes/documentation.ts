import { createHash } from 'node:crypto';
import type { FastifyInstance } from 'fastify';
import { docsPage, STYLE } from '../docs/docs-page.ts';
import { inlined, type OpenApiDocument } from '../docs/openapi.ts';
import { referenceTexts } from '../docs/reference-texts.ts';

/**
 * The description of the API: `/api/openapi.json` for programs, `/docs` for people; and the reference texts below `/docs`. They are
 * made once, at the start.
 */
export function documentationRoutes(app: FastifyInstance, document: OpenApiDocument): void {
  // Buffers, so that all replies share the same memory.
  const json = Buffer.from(JSON.stringify(document));
  const texts = referenceTexts();
  const page = Buffer.from(docsPage(inlined(document), texts));
  const styleHash = createHash('sha256').update(STYLE).digest('base64');
  app.get('/api/openapi.json', async (_request, reply) => reply.type('application/json; charset=utf-8').send(json));
  app.get('/docs', async (_request, reply) =>
    reply
      .header('content-security-policy', `default-src 'none'; style-src 'sha256-${styleHash}'; frame-ancestors 'none'; base-uri 'none'`)
      .type('text/html; charset=utf-8')
      .send(page),
  );
  for (const { path, markdown } of texts) {
    const bytes = Buffer.from(markdown);
    app.get(path, async (_request, reply) => reply.type('text/markdown; charset=utf-8').send(bytes));
  }
  app.get('/', async (_request, reply) => reply.redirect('/docs'));
}
