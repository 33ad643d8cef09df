import type { Buffer } from 'node:buffer';
import { ServiceError } from '../errors.ts';
import { BodyReader } from './body-reader.ts';
import { HEADER_BYTES } from './message-framing.ts';
import { stringEnd } from './null-terminated-strings.ts';
import { violation } from './protocol-violation.ts';

/** Type bytes of frontend messages after the startup message. */
export const FrontendType = {
  Bind: 0x42,
  Close: 0x43,
  Describe: 0x44,
  Execute: 0x45,
  FunctionCall: 0x46,
  Flush: 0x48,
  Parse: 0x50,
  Query: 0x51,
  Sync: 0x53,
  Terminate: 0x58,
  CopyDone: 0x63,
  CopyData: 0x64,
  CopyFail: 0x66,
  /** PasswordMessage, SASLInitialResponse or SASLResponse: only the state of the exchange tells which. */
  Password: 0x70,
} as const;

/** @see https://www.postgresql.org/docs/current/protocol-message-formats.html */
export type FrontendMessage =
  | { readonly name: 'Query'; readonly sql: string }
  | { readonly name: 'Parse'; readonly statement: string; readonly sql: string; readonly parameterTypes: readonly number[] }
  | {
      readonly name: 'Bind';
      readonly portal: string;
      readonly statement: string;
      /** 0 text, 1 binary. No entry: all text; one: for all; otherwise one for each. */
      readonly parameterFormats: readonly number[];
      /** Views of the message; null is SQL's NULL. */
      readonly parameters: readonly (Buffer | null)[];
      readonly resultFormats: readonly number[];
    }
  | { readonly name: 'Describe' | 'Close'; readonly kind: 'statement' | 'portal'; readonly target: string }
  /** `maxRows` 0: no limit. */
  | { readonly name: 'Execute'; readonly portal: string; readonly maxRows: number }
  | { readonly name: 'Sync' | 'Flush' | 'CopyDone' | 'Terminate' }
  | { readonly name: 'CopyData'; readonly data: Buffer }
  | { readonly name: 'CopyFail'; readonly reason: string }
  | {
      readonly name: 'FunctionCall';
      readonly functionOid: number;
      readonly argumentFormats: readonly number[];
      readonly arguments: readonly (Buffer | null)[];
      readonly resultFormat: number;
    };

/**
 * Decodes one whole message.
 * @param body without type and length
 * @throws ServiceError protocol_violation, in the cases in which Postgres reports one
 */
export function decodeFrontendMessage(type: number, body: Buffer): FrontendMessage {
  const reader = new BodyReader(body, 'frontend');
  const message = decodeFields(type, reader);
  reader.end();
  return message;
}

/** The text of a whole Query message, as Latin-1. */
export function queryText(message: Buffer): string {
  return message.toString('latin1', HEADER_BYTES, message.length - 1);
}

/**
 * @returns the password in an answer to AuthenticationCleartextPassword
 * @throws ServiceError protocol_violation, or unauthorized (28P01) when it is empty
 */
export function decodePasswordMessage(body: Buffer): string {
  if (body.length === 0 || body.indexOf(0) !== body.length - 1) throw violation('frontend', 'invalid password packet size');
  if (body.length === 1) throw new ServiceError('unauthorized', 'empty password returned by client');
  return body.toString('utf8', 0, body.length - 1);
}

/** The client's first message in a SASL exchange. A SASLResponse holds data only. */
export interface SaslInitialResponse {
  readonly mechanism: string;
  /** Undefined when the client waits for an empty challenge before it sends data. */
  readonly data: Buffer | undefined;
}

/** @throws ServiceError protocol_violation */
export function decodeSaslInitialResponse(body: Buffer): SaslInitialResponse {
  const reader = new BodyReader(body, 'frontend');
  const mechanism = reader.string();
  const data = reader.value() ?? undefined;
  reader.end();
  return { mechanism, data };
}

function decodeFields(type: number, reader: BodyReader): FrontendMessage {
  switch (type) {
    case FrontendType.Query:
      return { name: 'Query', sql: reader.string() };
    case FrontendType.Parse:
      return { name: 'Parse', statement: reader.string(), sql: reader.string(), parameterTypes: reader.list(() => reader.uint32()) };
    case FrontendType.Bind:
      return decodeBind(reader);
    case FrontendType.Describe:
      return { name: 'Describe', ...decodeTarget(reader, 'DESCRIBE') };
    case FrontendType.Close:
      return { name: 'Close', ...decodeTarget(reader, 'CLOSE') };
    case FrontendType.Execute:
      return { name: 'Execute', portal: reader.string(), maxRows: Math.max(0, reader.int32()) };
    case FrontendType.CopyData:
      return { name: 'CopyData', data: reader.rest() };
    case FrontendType.CopyFail:
      return { name: 'CopyFail', reason: reader.string() };
    case FrontendType.FunctionCall:
      return decodeFunctionCall(reader);
    case FrontendType.Sync:
      return { name: 'Sync' };
    case FrontendType.Flush:
      return { name: 'Flush' };
    case FrontendType.CopyDone:
      return { name: 'CopyDone' };
    case FrontendType.Terminate:
      return { name: 'Terminate' };
    default:
      throw violation('frontend', `invalid frontend message type ${type}`);
  }
}

function decodeBind(reader: BodyReader): FrontendMessage {
  return {
    name: 'Bind',
    portal: reader.string(),
    statement: reader.string(),
    parameterFormats: reader.list(() => reader.int16()),
    parameters: reader.list(() => reader.value()),
    resultFormats: reader.list(() => reader.int16()),
  };
}

function decodeFunctionCall(reader: BodyReader): FrontendMessage {
  return {
    name: 'FunctionCall',
    functionOid: reader.uint32(),
    argumentFormats: reader.list(() => reader.int16()),
    arguments: reader.list(() => reader.value()),
    resultFormat: reader.int16(),
  };
}

function decodeTarget(reader: BodyReader, message: 'DESCRIBE' | 'CLOSE'): { kind: 'statement' | 'portal'; target: string } {
  const subtype = reader.byte();
  const target = reader.string();
  if (subtype === STATEMENT) return { kind: 'statement', target };
  if (subtype === PORTAL) return { kind: 'portal', target };
  throw violation('frontend', `invalid ${message} message subtype ${subtype}`);
}

/** The kinds of target in Describe and Close. */
const STATEMENT = 0x53;
const PORTAL = 0x50;

/**
 * Finds the prepared statement's name in the message (or its head, see FrameRules) at `buffer[start..end)`, for a relay
 * that does not decode messages. The name ends at `stringEnd(buffer, nameStart, end)`; in Parse, SQL text and parameter
 * types follow it.
 * @param start offset of the message's type byte
 * @returns the name's offset in `buffer`, or -1 when the message has no statement name, or none before `end`
 */
export function statementNameStart(buffer: Buffer, start: number, end: number): number {
  const body = start + HEADER_BYTES;
  if (body >= end) return -1;
  switch (buffer[start]) {
    case FrontendType.Parse:
      return body;
    case FrontendType.Bind: {
      const portalEnd = stringEnd(buffer, body, end);
      return portalEnd === -1 ? -1 : portalEnd + 1;
    }
    case FrontendType.Describe:
    case FrontendType.Close:
      return buffer[body] === STATEMENT ? body + 1 : -1;
    default:
      return -1;
  }
}
