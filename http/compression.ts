import { Readable, type Transform, type Writable } from 'node:stream';
import { promisify } from 'node:util';
import { brotliCompress, constants, createBrotliCompress, createGzip, gzip } from 'node:zlib';
import type { FastifyInstance, FastifyReply } from 'fastify';
import { CHUNK_BYTES, giveBack } from '../src/sql/json-buffer.ts';
import { codedTag } from './entity-tags.ts';
import { weighted } from './headers.ts';
import type { RequestContext } from './request-context.ts';

/*
 * Replies are compressed by node:zlib, in its threads: `@fastify/compress` knows nothing of pieces that have to be given back, of
 * flushing after each of them, of the fast path, nor of the memory that counts for an organization.
 */

export type Coding = 'br' | 'gzip';

/** Smaller replies gain less than the headers take. */
const LEAST_BYTES = 1_024;
/** What a compressor takes while it is at work, about. */
const COMPRESSOR_BYTES = 1_048_576;

/** The fastest that bring most: JSON becomes an eighth with gzip, a twelfth with Brotli. */
const GZIP = { level: constants.Z_BEST_SPEED };
const BROTLI = { [constants.BROTLI_PARAM_QUALITY]: 2, [constants.BROTLI_PARAM_LGWIN]: 18 };
const gzipped = promisify(gzip);
const brotlied = promisify(brotliCompress);

/** How a reply is sent: in which coding, and the headers that say so. */
interface Encoded {
  readonly coding: Coding | undefined;
  readonly headers: Readonly<Record<string, string>>;
}

const AS_IT_IS: Encoded = { coding: undefined, headers: {} };

/**
 * How to send a reply to a caller with a key. Without one nothing is compressed: that costs the server more than the request costs its
 * caller.
 * @param bytes undefined for a stream, which becomes long
 */
export function encodingFor(call: RequestContext | undefined, acceptEncoding: string | undefined, bytes: number | undefined): Encoded {
  if (acceptEncoding === undefined || call?.tenant === undefined || (bytes !== undefined && bytes <= LEAST_BYTES)) return AS_IT_IS;
  const coding = acceptedCoding(acceptEncoding);
  const isLong = bytes === undefined || bytes > CHUNK_BYTES;
  // Where there is no memory for a compressor, there is for a reply as it is.
  if (coding === undefined || (isLong && call.compressor?.tryResize(COMPRESSOR_BYTES) !== undefined)) return encoded(undefined);
  return encoded(coding);
}

function encoded(coding: Coding | undefined): Encoded {
  return { coding, headers: { vary: 'Accept-Encoding', ...(coding === undefined ? {} : { 'content-encoding': coding }) } };
}

/** The accepted coding of the most weight; of two with the same, Brotli. @see https://www.rfc-editor.org/rfc/rfc9110#field.accept-encoding */
export function acceptedCoding(header: string): Coding | undefined {
  const weights = new Map(header.split(',').map(weighted));
  const any = weights.get('*') ?? 0;
  const [br = any, zip = any, identity = 0] = ['br', 'gzip', 'identity'].map((name) => weights.get(name));
  const best = Math.max(br, zip);
  if (best === 0 || identity > best) return undefined;
  return br === best ? 'br' : 'gzip';
}

/** For at most {@link CHUNK_BYTES}: for more, a thread that others need too would be busy for long. */
export function compress(body: Buffer, coding: Coding): Promise<Buffer> {
  return coding === 'gzip' ? gzipped(body, GZIP) : brotlied(body, { params: BROTLI });
}

/** Compresses piece by piece, and sends on what there is of each. */
export function compressed(body: Readable, coding: Coding): Readable {
  const out = compressor(coding);
  body.on('error', (error) => out.destroy(error));
  pipeStream(
    body,
    out,
    (piece, written) => out.write(piece, written),
    () => out.end(),
  );
  return out;
}

function compressor(coding: Coding): Transform {
  if (coding === 'gzip') return createGzip({ ...GZIP, flush: constants.Z_SYNC_FLUSH });
  return createBrotliCompress({ params: BROTLI, flush: constants.BROTLI_OPERATION_FLUSH });
}

/** A long body as a stream of pieces. They are copies, because the memory of a piece is used again as soon as it is compressed. */
export function piecesOf(body: Buffer): Readable {
  return Readable.from(copiesOf(body), { objectMode: false, highWaterMark: CHUNK_BYTES });
}

function* copiesOf(body: Buffer): Generator<Buffer> {
  for (let at = 0; at < body.length; at += CHUNK_BYTES) yield Buffer.from(body.subarray(at, at + CHUNK_BYTES));
}

/** The compressed forms of bodies that are sent to many callers, by the identity of the body. */
const shared = new WeakMap<Buffer, Map<Coding, Promise<Buffer>>>();

/**
 * Has a body that is sent again and again compressed only once for each coding.
 * @param known its compressed forms that exist already
 */
export function shareCompressed(body: Buffer, known: Readonly<Partial<Record<Coding, Buffer>>> = {}): Buffer {
  const forms = Object.entries(known).map(([coding, form]) => [coding as Coding, Promise.resolve(form)] as const);
  shared.set(body, new Map(forms));
  return body;
}

function compressOnce(body: Buffer, forms: Map<Coding, Promise<Buffer>>, coding: Coding): Promise<Buffer> {
  const known = forms.get(coding);
  if (known !== undefined) return known;
  const made = compress(body, coding);
  forms.set(coding, made);
  return made;
}

/** Compresses what Fastify sends. */
export function compressReplies(app: FastifyInstance): void {
  app.addHook('onSend', (request, reply, payload, done) => {
    const accepted = request.headers['accept-encoding'];
    if (typeof accepted !== 'string' || request.method === 'HEAD' || !(typeof payload === 'string' || Buffer.isBuffer(payload))) {
      done();
      return;
    }
    const body = Buffer.isBuffer(payload) ? payload : Buffer.from(payload);
    const forms = shared.get(body);
    const { coding, headers } = forms === undefined ? encodingFor(request.call, accepted, body.length) : encoded(acceptedCoding(accepted));
    setEncoding(reply, headers);
    tagCoded(reply, coding);
    if (coding === undefined) done();
    else if (forms === undefined && body.length > CHUNK_BYTES) done(null, compressed(piecesOf(body), coding));
    else (forms === undefined ? compress(body, coding) : compressOnce(body, forms, coding)).then((smaller) => done(null, smaller), done);
  });
}

/** A strong entity tag stands for bytes, so that of a compressed reply is another one. */
function tagCoded(reply: FastifyReply, coding: Coding | undefined): void {
  const tag = reply.getHeader('etag');
  if (coding !== undefined && typeof tag === 'string') reply.header('etag', codedTag(tag, coding));
}

/** Adds the headers; pages' origins may be in Vary already. */
export function setEncoding(reply: FastifyReply, headers: Encoded['headers']): void {
  const vary = reply.getHeader('vary');
  reply.headers(headers);
  if (vary !== undefined && headers.vary !== undefined) reply.header('vary', `${String(vary)}, ${headers.vary}`);
}

/**
 * Sends a stream in pieces, with backpressure. If the stream fails, the connection is destroyed, so that the client notices that the
 * reply is incomplete; if the connection is closed, the stream is destroyed.
 * @param write reports when a piece has been written, and whether more may be written
 */
export function pipeStream(body: Readable, into: Writable, write: (piece: Buffer, written: () => void) => boolean, end: () => void): void {
  const resume = () => body.resume();
  const stop = () => body.destroy();
  into.on('drain', resume);
  into.on('close', stop);
  body.on('error', () => into.destroy());
  body.on('end', () => {
    into.off('drain', resume);
    into.off('close', stop);
    end();
  });
  body.on('data', (piece: Buffer) => {
    if (!write(piece, () => giveBack(piece))) body.pause();
  });
}
