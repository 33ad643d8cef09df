import type { Sequence } from '../../../api/database-schema.ts';
import { qualifiedName, quoteIdentifier } from '../../../quoting/quote-identifier.ts';

const MAXIMA: Readonly<Record<string, bigint>> = { smallint: 32_767n, integer: 2_147_483_647n, bigint: 9_223_372_036_854_775_807n };

export function createSequence(sequence: Sequence): string {
  const options = [...(sequence.type === 'bigint' ? [] : [`AS ${sequence.type}`]), ...sequenceOptions(sequence)];
  return `CREATE SEQUENCE ${[qualifiedName(sequence.schema, sequence.name), ...options].join(' ')};`;
}

/** The clauses that say what is not as by default. */
export function sequenceOptions(sequence: Sequence): readonly string[] {
  const { increment, minValue, maxValue, start, cache, isCycling } = sequence;
  const max = MAXIMA[sequence.type] ?? 0n;
  const isAscending = !increment.startsWith('-');
  const [defaultMin, defaultMax] = isAscending ? [1n, max] : [-max - 1n, -1n];
  return [
    ...(increment === '1' ? [] : [`INCREMENT BY ${increment}`]),
    ...(BigInt(minValue) === defaultMin ? [] : [`MINVALUE ${minValue}`]),
    ...(BigInt(maxValue) === defaultMax ? [] : [`MAXVALUE ${maxValue}`]),
    ...(start === (isAscending ? minValue : maxValue) ? [] : [`START WITH ${start}`]),
    ...(cache === '1' ? [] : [`CACHE ${cache}`]),
    ...(isCycling ? ['CYCLE'] : []),
  ];
}

/** It is dropped with the column. @returns undefined when it belongs to none */
export function ownSequence({ schema, name, ownedBy }: Sequence): string | undefined {
  if (ownedBy === null) return undefined;
  const column = `${qualifiedName(ownedBy.schema, ownedBy.table)}.${quoteIdentifier(ownedBy.column)}`;
  return `ALTER SEQUENCE ${qualifiedName(schema, name)} OWNED BY ${column};`;
}
