import type { ResultFormat } from '../../src/sql/formats.ts';
import {
  arrayRows,
  encodeBoolean,
  encodeFloat,
  encodersBy,
  encodeText,
  encodeVerbatim,
  type Field,
  objectRows,
} from '../../src/sql/json-values.ts';

export interface OutputMode {
  /** All values are strings in Postgres' text format; the client converts them. */
  readonly raw: boolean;
  readonly rowAsArray: boolean;
}

/** A result as Neon's proxy writes it: `{fields, rowAsArray, rows, command, rowCount}`. */
export function neonFormat({ raw, rowAsArray }: OutputMode): ResultFormat {
  const encoders = raw ? asText : asJson;
  return {
    losesRepeatedNames: false,
    needsTypes: !raw,
    separator: COMMA,
    rows: (fields) => (rowAsArray ? arrayRows(fields, encoders) : objectRows(fields, encoders)),
    open(out, fields) {
      out.text(`{"fields":${JSON.stringify(fields.map(describe))},"rowAsArray":${rowAsArray},"rows":[`);
    },
    close(out, { command, rowCount }) {
      // As in node-postgres: CREATE, not CREATE TABLE.
      const [firstWord = ''] = command.split(' ', 1);
      out.text(`],"command":${JSON.stringify(firstWord)},"rowCount":${rowCount}}`);
    },
  };
}

const COMMA = Buffer.from(',');

const asText = () => encodeText;

/** More types are strings than in other replies of the HTTP door. */
const asJson = encodersBy(
  new Map([
    [16, encodeBoolean],
    [21, encodeVerbatim], // int2
    [23, encodeVerbatim], // int4
    [700, encodeFloat],
    [701, encodeFloat],
    [114, encodeVerbatim], // json
    [3802, encodeVerbatim], // jsonb
  ]),
);

/** The names are node-postgres'. */
function describe({ name, dataTypeOid, tableOid, columnNumber, dataTypeSize, typeModifier }: Field) {
  return {
    name,
    dataTypeID: dataTypeOid,
    tableID: tableOid,
    columnID: columnNumber,
    dataTypeSize,
    dataTypeModifier: typeModifier,
    format: 'text',
  };
}
