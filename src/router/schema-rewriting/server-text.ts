import { applyEdits, EditList, rewrittenPosition } from '../../syntax/edits.ts';

/**
 * Rewrites text of the server (the message, detail, hint or context of an error) for the client. The organization's schema becomes
 * `public` where it qualifies a name (`org_x.users`, `"org_x"."User"`, `"org_x.users"`), and after the word "schema". It stays
 * elsewhere, because the role and the database have the same name, and clients know it. It also stays after "schema" in other
 * languages than English.
 */
export function clientText(text: string, schema: string): string {
  return text.includes(schema) ? applyEdits(text, schemaEdits(text, schema)) : text;
}

/**
 * As {@link clientText}, for the internal query of an error (field `q`) and the position in it (field `p`), which counts
 * characters from 1.
 */
export function clientQuery(query: string, position: number, schema: string): { query: string; position: number } {
  const edits = schemaEdits(query, schema);
  return { query: applyEdits(query, edits), position: rewrittenPosition(edits, position) };
}

function schemaEdits(text: string, schema: string): EditList {
  const list = new EditList(text, false);
  for (const { index } of text.matchAll(schemaMentions(schema))) list.add(index, index + schema.length, 'public');
  return list;
}

/** Matches the schema as a whole identifier, if a dot and a name follow, or if "schema" precedes. */
function schemaMentions(schema: string): RegExp {
  const whole = String.raw`(?<![\w$\u0080-\uffff])${schema}(?![\w$\u0080-\uffff])`;
  return new RegExp(String.raw`${whole}(?="?\s?\.\s?[^\s.])|(?<=\bschema "?)${whole}`, 'gi');
}
