import { applyEdits, EditList, rewrittenPosition } from './edits/edits.ts';

/**
 * Text that Postgres wrote (the message, detail, hint or context of an error, the name of a schema in its `s` field aside),
 * as a client has to read it: the organization's schema is `public` where it qualifies a name (`org_x.users`,
 * `"org_x"."User"`, `"org_x.users"`) and where the word "schema" stands before it. Elsewhere it is left: the role and the
 * database have the same name, and clients know it. Messages in another language than English keep it in
 * `schema org_x`; a sentence that ends in the name keeps it too.
 */
export function clientText(text: string, schema: string): string {
  return text.includes(schema) ? applyEdits(text, schemaEdits(text, schema)) : text;
}

/**
 * As {@link clientText}, for the internal query of an error (field `q`) with the position in it (field `p`), which
 * counts characters from 1.
 */
export function clientQuery(query: string, position: number, schema: string): { query: string; position: number } {
  const edits = schemaEdits(query, schema);
  return { query: applyEdits(query, edits), position: rewrittenPosition(edits, position) };
}

function schemaEdits(text: string, schema: string): EditList {
  const list = new EditList(text, false);
  for (const { index } of text.matchAll(places(schema))) list.add(index, index + schema.length, 'public');
  return list;
}

/** Before it no part of a longer name; behind it a dot and a name, or before it "schema". */
function places(schema: string): RegExp {
  const whole = String.raw`(?<![\w$\u0080-\uffff])${schema}(?![\w$\u0080-\uffff])`;
  return new RegExp(String.raw`${whole}(?="?\s?\.\s?[^\s.])|(?<=\bschema "?)${whole}`, 'gi');
}
