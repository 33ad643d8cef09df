import { STATUS_CODES } from 'node:http';
import { ALWAYS } from '../plugins/reply-headers.ts';

export interface ReplyHead {
  readonly status: number;
  readonly requestId: string;
  readonly contentType: string;
  /** The length of the body; undefined: it is sent in chunks. */
  readonly length: number | undefined;
  /** Headers in addition to those of every reply. */
  readonly headers?: Readonly<Record<string, string>> | undefined;
  /** Undefined: the connection ends with the reply. */
  readonly keepAliveS: number | undefined;
}

const ALWAYS_TEXT = linesOf(ALWAYS);

/** The head of a reply as Node writes it, in Latin-1. */
export function writeHead({ status, requestId, contentType, length, headers, keepAliveS }: ReplyHead): string {
  const framing = length === undefined ? 'Transfer-Encoding: chunked' : `content-length: ${length}`;
  const connection = keepAliveS === undefined ? 'Connection: close' : `Connection: keep-alive\r\nKeep-Alive: timeout=${keepAliveS}`;
  const more = headers === undefined ? '' : linesOf(headers);
  return `HTTP/1.1 ${status} ${STATUS_CODES[status] ?? ''}\r\nx-request-id: ${requestId}\r\n${ALWAYS_TEXT}content-type: ${contentType}\r\n${more}${framing}\r\nDate: ${dateNow()}\r\n${connection}\r\n\r\n`;
}

function linesOf(headers: Readonly<Record<string, string>>): string {
  return Object.entries(headers)
    .map(([name, value]) => `${name}: ${value}\r\n`)
    .join('');
}

let date = { second: 0, text: '' };

/** @see https://www.rfc-editor.org/rfc/rfc9110#field.date */
function dateNow(): string {
  const second = Math.floor(Date.now() / 1_000);
  if (second !== date.second) date = { second, text: new Date(second * 1_000).toUTCString() };
  return date.text;
}
