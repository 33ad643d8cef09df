import { type BackendMessage, describeBackend } from './backend-message.ts';
import { logIn } from './login.ts';
import { encodeStatement, type Mode } from './statement-bytes.ts';
import type { Statement } from './statements.ts';
import type { Target } from './target.ts';
import { shorten } from './template.ts';
import { WireClient } from './wire-client.ts';

/** What two servers answered to the same bytes, where it differs. */
export interface Difference {
  readonly sql: string;
  readonly left: readonly string[];
  readonly right: readonly string[];
}

/** Sends every statement on one session and reads its answer: all messages up to ReadyForQuery. */
export async function answers(target: Target, statements: readonly Statement[], mode: Mode): Promise<BackendMessage[][]> {
  const client = await WireClient.open(target.host, target.port);
  try {
    await logIn(client, target, '3.0', new Map());
    if (mode === 'pipelined') await client.write(Buffer.concat(statements.map((statement) => encodeStatement(statement, mode))));
    const all: BackendMessage[][] = [];
    for (const statement of statements) {
      if (mode !== 'pipelined') await client.write(encodeStatement(statement, mode));
      all.push(await readAnswer(client, statement));
    }
    return all;
  } finally {
    client.disconnect();
  }
}

async function readAnswer(client: WireClient, { sql }: Statement): Promise<BackendMessage[]> {
  const messages: BackendMessage[] = [];
  for (;;) {
    const message = await client.read();
    if (message === undefined || message === 'EOF') throw new Error(`${message ?? 'silence'} instead of an answer to: ${sql}`);
    messages.push(message);
    if (message.type === 'Z') return messages;
  }
}

export function differences(
  statements: readonly Statement[],
  left: readonly BackendMessage[][],
  right: readonly BackendMessage[][],
): Difference[] {
  return statements.flatMap(({ sql }, index) => {
    const [one, other] = [left[index] ?? [], right[index] ?? []];
    if (one.length === other.length && one.every((message, n) => sameBytes(message, other[n]))) return [];
    return [{ sql, left: one.map((message, n) => show(message, other[n])), right: other.map((message, n) => show(message, one[n])) }];
  });
}

function sameBytes(message: BackendMessage, other: BackendMessage | undefined): boolean {
  return other !== undefined && comparable(message).equals(comparable(other));
}

/** Type and body, with the OIDs of objects made by the statements themselves blanked: they differ from database to database. */
function comparable({ type, body }: BackendMessage): Buffer {
  const bytes = Buffer.from(body);
  if (type === 'T') blankColumns(bytes);
  if (type === 't') for (let at = 2; at < bytes.length; at += 4) blankOid(bytes, at);
  return Buffer.concat([Buffer.from(type), bytes]);
}

/** RowDescription: per column the name, then table OID, attribute number, type OID, and 8 bytes more. */
function blankColumns(bytes: Buffer): void {
  for (let at = 2; at < bytes.length; at += 18) {
    at = bytes.indexOf(0, at) + 1;
    blankOid(bytes, at);
    blankOid(bytes, at + 6);
  }
}

const FIRST_NEW_OID = 16384;

function blankOid(bytes: Buffer, at: number): void {
  if (bytes.readUInt32BE(at) >= FIRST_NEW_OID) bytes.writeUInt32BE(0, at);
}

/** As a script shows it, and in hexadecimal where the other one differs. */
function show(message: BackendMessage, other: BackendMessage | undefined): string {
  const text = shorten(describeBackend(message));
  return sameBytes(message, other) ? text : `${text} ${comparable(message).toString('hex')}`;
}
