import { ServiceError } from '../../errors.ts';

/** An opaque cursor: a position in a list that is read newest first. */
export function encodeCursor(seq: number): string {
  return Buffer.from(`1.${seq}`).toString('base64url');
}

/** @throws ServiceError `invalid_request` when it was not made by {@link encodeCursor} */
export function decodeCursor(cursor: string): number {
  const seq = /^1\.([1-9]\d{0,15})$/.exec(Buffer.from(cursor, 'base64url').toString())?.[1];
  if (seq === undefined || encodeCursor(Number(seq)) !== cursor)
    throw new ServiceError('invalid_request', 'after: is not a cursor of this list');
  return Number(seq);
}
