import { Buffer } from 'node:buffer';
import { createHash } from 'node:crypto';

/** The parameters and columns of a prepared statement, from the replies to a Describe. */
export interface StatementShape {
  /** Equal for statements with the same parameters and columns; empty where these are not known. */
  readonly digest: string;
  /** Number and types of the parameters, as at the end of a Parse message; undefined where there are too many to keep. */
  readonly parameters: Buffer | undefined;
  /** Whether it returns rows; true where that is not known. */
  readonly hasColumns: boolean;
}

/** The shape where the description was too long to be read. It equals no other. */
export const UNKNOWN_SHAPE: StatementShape = { digest: '', parameters: undefined, hasColumns: true };

/** Bytes of a column after its name: table, number, type, size, modifier, format. */
const COLUMN_BYTES = 18;
const TYPE_OFFSET = 6;
const MODIFIER_OFFSET = 12;
const KEPT_PARAMETERS_BYTES = 1_024;

/**
 * Compares what PostgreSQL compares when it plans a statement again: the columns' names, types and type modifiers. A column's
 * table and number do not matter.
 * @param parameters body of a ParameterDescription
 * @param columns body of a RowDescription; undefined for NoData
 * @see https://github.com/postgres/postgres/blob/master/src/backend/utils/cache/plancache.c RevalidateCachedQuery
 */
export function statementShape(parameters: Buffer, columns: Buffer | undefined): StatementShape {
  const hash = createHash('sha256').update(parameters);
  if (columns !== undefined) hash.update('columns').update(comparedParts(columns));
  const kept = parameters.length <= KEPT_PARAMETERS_BYTES ? Buffer.from(parameters) : undefined;
  return { digest: hash.digest('base64'), parameters: kept, hasColumns: columns !== undefined };
}

export function isSameShape(some: StatementShape, other: StatementShape): boolean {
  return some.digest !== '' && some.digest === other.digest;
}

function comparedParts(columns: Buffer): Buffer {
  const parts = Buffer.allocUnsafe(columns.length);
  let length = 0;
  for (let at = 2; at < columns.length; ) {
    const nameEnd = columns.indexOf(0, at) + 1;
    if (nameEnd === 0) break;
    length += columns.copy(parts, length, at, nameEnd);
    length += columns.copy(parts, length, nameEnd + TYPE_OFFSET, nameEnd + TYPE_OFFSET + 4);
    length += columns.copy(parts, length, nameEnd + MODIFIER_OFFSET, nameEnd + MODIFIER_OFFSET + 4);
    at = nameEnd + COLUMN_BYTES;
  }
  return parts.subarray(0, length);
}
