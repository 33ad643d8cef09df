import { createHash } from 'node:crypto';
import type { FastifyReply, FastifyRequest } from 'fastify';
import * as z from 'zod';
import { JSON_TYPE } from './headers.ts';

/*
 * Entity tags tell whether a document is the one that the client knows. They are strong: a compressed reply has a tag of its own,
 * which is that of the document with the coding behind it.
 * @see https://www.rfc-editor.org/rfc/rfc9110#name-etag
 */

export const CONDITIONAL_READ_HEADERS = {
  'If-None-Match': z
    .string()
    .max(1_000)
    .exactOptional()
    .describe('The ETag of an earlier reply: 304 without a body if it is still the same'),
};

export const CONDITIONAL_CHANGE_HEADERS = {
  'If-Match': z.string().max(1_000).exactOptional().describe('The ETag of what is to be changed: 412 if it has changed since, or is gone'),
  'If-None-Match': z.string().max(1_000).exactOptional().describe('*: 412 if there is one already'),
};

export const ENTITY_TAG_HEADER = { ETag: 'Of this document, for If-None-Match and If-Match' };

/** Sends a JSON document, or 304 if the client has it. @param version what is in the entity tag; changes with the document */
export function sendUnlessKnown(request: FastifyRequest, reply: FastifyReply, body: Buffer | object, version: string): FastifyReply {
  reply.header('etag', entityTag(version));
  if (names(request.headers['if-none-match'], version)) return reply.code(304).send();
  return Buffer.isBuffer(body) ? reply.type(JSON_TYPE).send(body) : reply.send(body);
}

/** A version for a document that has none. */
export function hashOf(body: Buffer): string {
  return createHash('sha256').update(body).digest('base64url');
}

export function entityTag(version: string): string {
  return `"${version}"`;
}

/** The entity tag of a document in a content coding. */
export function codedTag(tag: string, coding: string): string {
  return tag.replace(/"$/, `-${coding}"`);
}

const TAG = /(?:W\/)?"([^"]*?)(?:-(?:br|gzip))?"/g;

/** Whether a list of entity tags has that of this version, in any coding. `*` has every one. */
export function names(list: string | undefined, version: string): boolean {
  if (list === undefined) return false;
  return list.trim() === '*' || [...list.matchAll(TAG)].some(([, named]) => named === version);
}
