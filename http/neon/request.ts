import type { IncomingHttpHeaders } from 'node:http';
import type { z } from 'zod';
import { ServiceError } from '../../src/errors.ts';
import { TimeSlices } from '../../src/runtime/event-loop.ts';
import type { TextStatement } from '../../src/sql/neon-queries.ts';
import type { IsolationLevel, TransactionModes } from '../../src/sql/transaction.ts';
import { validate } from '../json/validation.ts';
import { parameterTexts } from './parameters.ts';
import { neonFormat } from './result-format.ts';
import { neonBatch, neonQuery } from './schemas.ts';

export type NeonRequest =
  | { readonly kind: 'single'; readonly statement: TextStatement }
  | { readonly kind: 'batch'; readonly statements: readonly TextStatement[]; readonly modes: TransactionModes };

const ISOLATION_LEVELS: ReadonlyMap<string, IsolationLevel> = new Map([
  ['ReadUncommitted', 'read uncommitted'],
  ['ReadCommitted', 'read committed'],
  ['RepeatableRead', 'repeatable read'],
  ['Serializable', 'serializable'],
]);

/** @throws ServiceError `invalid_request` */
export async function readNeonRequest(headers: IncomingHttpHeaders, body: unknown): Promise<NeonRequest> {
  const modes = transactionModes(headers);
  if (!isBatch(body)) return { kind: 'single', statement: await statement(headers, validate(neonQuery, body, 'the body')) };
  const { queries } = validate(neonBatch, body, 'the body');
  const statements: TextStatement[] = [];
  const slices = new TimeSlices();
  for (const one of queries) {
    statements.push(await statement(headers, one));
    const pause = slices.pause();
    if (pause !== undefined) await pause;
  }
  return { kind: 'batch', statements, modes };
}

/** The headers of a batch that are repeated in its reply. */
export function echoedHeaders(headers: IncomingHttpHeaders): Record<string, string> {
  const echoed: Record<string, string> = {};
  const level = headers['neon-batch-isolation-level'];
  if (typeof level === 'string') echoed['neon-batch-isolation-level'] = level;
  for (const name of ['neon-batch-read-only', 'neon-batch-deferrable']) if (headers[name] === 'true') echoed[name] = 'true';
  return echoed;
}

function isBatch(body: unknown): boolean {
  return typeof body === 'object' && body !== null && 'queries' in body && !('query' in body);
}

async function statement(
  headers: IncomingHttpHeaders,
  { query: sql, params, arrayMode }: z.output<typeof neonQuery>,
): Promise<TextStatement> {
  const raw = headers['neon-raw-text-output'] === 'true';
  const rowAsArray = arrayMode ?? headers['neon-array-mode'] === 'true';
  return { sql, values: await parameterTexts(params), format: neonFormat({ raw, rowAsArray }) };
}

function transactionModes(headers: IncomingHttpHeaders): TransactionModes {
  const level = headers['neon-batch-isolation-level'];
  const isolationLevel = typeof level === 'string' ? ISOLATION_LEVELS.get(level) : undefined;
  if (level !== undefined && isolationLevel === undefined) throw new ServiceError('invalid_request', 'invalid isolation level');
  return {
    ...(isolationLevel === undefined ? {} : { isolationLevel }),
    ...(headers['neon-batch-read-only'] === 'true' ? { readOnly: true } : {}),
    ...(headers['neon-batch-deferrable'] === 'true' ? { deferrable: true } : {}),
  };
}
