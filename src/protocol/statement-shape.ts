import { Buffer } from 'node:buffer';
import { createHash } from 'node:crypto';

/** The parameters and columns of a prepared statement, from the replies to a Describe of it or of a portal. */
export interface StatementShape {
  /** Equal for statements with the same columns; empty where these are not known. */
  readonly columnsDigest: string;
  /** Equal for statements with the same parameters; undefined where a portal was described. */
  readonly parametersDigest: string | undefined;
  /** Number and types of the parameters, as at the end of a Parse message; undefined where these are not known or too many to keep. */
  readonly parameters: Buffer | undefined;
  /** Whether it returns rows; true where that is not known. */
  readonly hasColumns: boolean;
}

/** The shape where the description was too long to be read. It equals no other. */
export const UNKNOWN_SHAPE: StatementShape = { columnsDigest: '', parametersDigest: undefined, parameters: undefined, hasColumns: true };

/** Bytes of a column after its name: table, number, type, size, modifier, format. */
const COLUMN_BYTES = 18;
const TYPE_OFFSET = 6;
const MODIFIER_OFFSET = 12;
const KEPT_PARAMETERS_BYTES = 1_024;

/**
 * Compares what PostgreSQL compares when it plans a statement again: the columns' names, types and type modifiers. A column's
 * table and number do not matter.
 * @param parameters body of a ParameterDescription; undefined for a portal, of which the server tells only the columns
 * @param columns body of a RowDescription; undefined for NoData
 * @see https://github.com/postgres/postgres/blob/master/src/backend/utils/cache/plancache.c RevalidateCachedQuery
 */
export function statementShape(parameters: Buffer | undefined, columns: Buffer | undefined): StatementShape {
  return {
    columnsDigest: columns === undefined ? NO_COLUMNS : digestOf(comparedParts(columns)),
    parametersDigest: parameters === undefined ? undefined : digestOf(parameters),
    parameters: parameters !== undefined && parameters.length <= KEPT_PARAMETERS_BYTES ? Buffer.from(parameters) : undefined,
    hasColumns: columns !== undefined,
  };
}

/** Whether two statements have the same columns and, where both are known, the same parameters. */
export function isSameShape(some: StatementShape, other: StatementShape): boolean {
  const isSame = some.columnsDigest !== '' && some.columnsDigest === other.columnsDigest;
  const areKnown = some.parametersDigest !== undefined && other.parametersDigest !== undefined;
  return isSame && (!areKnown || some.parametersDigest === other.parametersDigest);
}

const NO_COLUMNS = 'none';

function digestOf(bytes: Buffer): string {
  return createHash('sha256').update(bytes).digest('base64');
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
