import { encodeFrontend } from './frontend-message.ts';
import type { Statement } from './statements.ts';

/**
 * How a statement is sent: as a simple query; by the extended protocol with results in text or in binary; or by the
 * extended protocol with all statements written before the first answer is read.
 */
export type Mode = 'simple' | 'text' | 'binary' | 'pipelined';

/** Whether it can be sent that way: a simple query has no parameters. */
export function canBeSent({ params }: Statement, mode: Mode): boolean {
  return mode !== 'simple' || params === undefined;
}

export function encodeStatement({ sql, params = [], copy }: Statement, mode: Mode): Buffer {
  const data = copy === undefined ? [] : [`CopyData ${literal(copy)}`, 'CopyDone'];
  if (mode === 'simple') return encode([`Query ${sql}`, ...data]);
  const values = params.map((param) => (param === null ? 'null' : literal(param)));
  const formats = params.length === 0 ? '' : ` params=${params.map((param) => (param instanceof Buffer ? 'binary' : 'text')).join(',')}`;
  const bind = `Bind "" "" [${values.join(' ')}]${formats} results=${mode === 'binary' ? 'binary' : 'text'}`;
  return encode([`Parse "" ${sql}`, 'Describe S ""', bind, 'Describe P ""', 'Execute', ...data, 'Sync']);
}

function literal(value: string | Buffer): string {
  return value instanceof Buffer ? `\\x${value.toString('hex')}` : JSON.stringify(value);
}

function encode(lines: readonly string[]): Buffer {
  return Buffer.concat(lines.map(encodeFrontend));
}
