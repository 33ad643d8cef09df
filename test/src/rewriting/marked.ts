/** The organization's schema in these tests. */
export const SCHEMA = 'org_k3v9x0q2m7t1';
export const TARGET = { schema: SCHEMA };

/**
 * What a client sends, and what the server has to get for it, written as one: `SELECT * FROM «public».users`. What stands
 * between the marks is replaced by the organization's schema, everything else is not touched.
 */
export function marked(text: string): { sent: string; wanted: string } {
  return { sent: text.replace(/[«»]/g, ''), wanted: text.replace(/«[^»]*»/g, SCHEMA) };
}
