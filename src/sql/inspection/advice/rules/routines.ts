import type { Rule } from '../rule.ts';

/**
 * A role that may create temporary objects, or choose the search path, decides what the names in such a routine mean, which then runs as
 * its owner. The cure leaves the path as sessions have it, but for pg_temp, which comes last.
 */
export const DEFINER_WITHOUT_SEARCH_PATH: Rule = {
  name: 'definer_without_search_path',
  severity: 'warning',
  sql: `
    SELECT r.schema, NULL::pg_catalog.text, r.name,
      pg_catalog.format('%s(%s) runs with the rights of its owner, and with the search_path of the caller, who can so put other objects in the place of those that it names.',
        r.name, coalesce(r.arguments, '')),
      pg_catalog.format('ALTER ROUTINE %I.%I(%s) SET search_path = %s, pg_temp', r.schema, r.name, coalesce(r.arguments, ''),
        CASE r.schema WHEN 'public' THEN 'public' ELSE pg_catalog.format('%I, public', r.schema) END)
    FROM (
      SELECT s.name AS schema, p.proname::pg_catalog.text AS name, (
        SELECT pg_catalog.string_agg(CASE
            WHEN pg_catalog.pg_type_is_visible(t.oid) THEN pg_catalog.format_type(t.oid, NULL)
            WHEN t.typelem <> 0 AND t.typsubscript = 'pg_catalog.array_subscript_handler'::pg_catalog.regproc
              THEN pg_catalog.format('%I.%I[]', es.name, e.typname)
            ELSE pg_catalog.format('%I.%I', ts.name, t.typname) END, ', ' ORDER BY a.place)
        FROM pg_catalog.unnest(p.proargtypes) WITH ORDINALITY AS a (type, place) JOIN pg_catalog.pg_type t ON t.oid = a.type
        LEFT JOIN schemas ts ON ts.oid = t.typnamespace LEFT JOIN pg_catalog.pg_type e ON e.oid = t.typelem
        LEFT JOIN schemas es ON es.oid = e.typnamespace) AS arguments
      FROM pg_catalog.pg_proc p JOIN schemas s ON s.oid = p.pronamespace
      WHERE s.is_own AND p.prosecdef AND NOT EXISTS (
        SELECT FROM pg_catalog.unnest(p.proconfig) AS setting WHERE pg_catalog.starts_with(setting, 'search_path='))
      AND NOT EXISTS (SELECT FROM pg_catalog.pg_depend d
        WHERE d.classid = 'pg_catalog.pg_proc'::pg_catalog.regclass AND d.objid = p.oid AND d.deptype = 'e')) AS r
    ORDER BY r.schema, r.name, r.arguments`,
};
