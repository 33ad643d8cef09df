import type { SchemaColumn, Sequence } from '../../../api/database-schema.ts';
import { qualifiedName, quoteIdentifier } from '../../../quoting/quote-identifier.ts';
import { sequenceOptions } from './sequence-ddl.ts';

/** @param sequence the one of its identity */
export function columnDefinition(column: SchemaColumn, sequence: Sequence | undefined, isPartition = false): string {
  const { name, type, collation, notNull } = column;
  return [
    quoteIdentifier(name),
    type,
    ...(collation === null ? [] : [`COLLATE ${collation}`]),
    ...valueSource(column, sequence, isPartition),
    ...(notNull ? ['NOT NULL'] : []),
  ].join(' ');
}

function valueSource(column: SchemaColumn, sequence: Sequence | undefined, isPartition: boolean): readonly string[] {
  const { identity, generated, generation } = column;
  if (generated !== null) return [`GENERATED ALWAYS AS (${generated}) ${generation === 'virtual' ? 'VIRTUAL' : 'STORED'}`];
  // A partition has the identity of the whole table, and may have none before it is attached.
  if (identity !== null && !isPartition) return [`GENERATED ${identity.toUpperCase()} AS IDENTITY${identityOptions(column, sequence)}`];
  return column.default === null ? [] : [`DEFAULT ${column.default}`];
}

function identityOptions({ name }: SchemaColumn, sequence: Sequence | undefined): string {
  if (sequence === undefined) return '';
  const isNamedAsUsual = sequence.name === `${sequence.ownedBy?.table}_${name}_seq` && sequence.schema === sequence.ownedBy?.schema;
  const options = [
    ...(isNamedAsUsual ? [] : [`SEQUENCE NAME ${qualifiedName(sequence.schema, sequence.name)}`]),
    ...sequenceOptions(sequence),
  ];
  return options.length === 0 ? '' : ` (${options.join(' ')})`;
}
