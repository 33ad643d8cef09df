import type { Routine, SchemaType } from '../../../api/database-schema.ts';
import { qualifiedName } from '../../../quoting/quote-identifier.ts';
import { quoteLiteral } from '../../../quoting/quote-literal.ts';
import { commentOn } from './comment-and-with-clauses.ts';

const SUBTYPE = /^range of /;

export function typeDdl(type: SchemaType): readonly string[] {
  const name = qualifiedName(type.schema, type.name);
  const kind = type.kind === 'domain' ? 'DOMAIN' : 'TYPE';
  return [`CREATE ${kind} ${name} AS ${typeBody(type)};`, ...(type.comment === null ? [] : [commentOn(`${kind} ${name}`, type.comment)])];
}

function typeBody({ kind, labels, definition }: SchemaType): string {
  if (kind === 'enum') return `ENUM (${(labels ?? []).map(quoteLiteral).join(', ')})`;
  if (kind === 'range') return `RANGE (SUBTYPE = ${(definition ?? '').replace(SUBTYPE, '')})`;
  return definition ?? '';
}

/** @returns nothing for an aggregate: the API does not show what it is made of */
export function functionDdl(routine: Routine): readonly string[] {
  if (routine.definition === null) return [];
  const kind = routine.kind === 'procedure' ? 'PROCEDURE' : 'FUNCTION';
  const name = `${qualifiedName(routine.schema, routine.name)}(${routine.identityArguments})`;
  return [`${routine.definition.trimEnd()};`, ...(routine.comment === null ? [] : [commentOn(`${kind} ${name}`, routine.comment)])];
}
