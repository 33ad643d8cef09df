import type { Placement } from '../catalog/organization.ts';
import { PostgresError } from '../protocol/backend.ts';
import { posternObjects } from './postern-tables.ts';
import type { SqlSession } from './session.ts';

/** What there is in a database: the digest of each object by its kind and name, such as `table public.orders`. */
type Objects = ReadonlyMap<string, string>;

/** What a migration has made, changed or removed, with the digest that it has left; null: it is gone. By kind and name. */
export type ChangedObjects = Readonly<Record<string, string | null>>;

/** Of more objects nothing is kept. */
const OBJECTS_MAX = 10_000;

/**
 * $1: the organization's schema, whose name is shown as `public`; $2: whether it is the only one; $3, $4: schemas and tables that are
 * Postern's. A digest is of definitions that have no numbers of the server's in them, so that it is the same in a copy.
 */
const OBJECTS = `
  WITH spaces AS MATERIALIZED (
    SELECT oid, CASE WHEN nspname = $1 THEN 'public' ELSE nspname END AS name FROM pg_catalog.pg_namespace
    WHERE CASE WHEN $2::bool THEN nspname = $1 ELSE nspname !~ '^pg_' AND nspname <> 'information_schema' AND nspname <> ALL ($3::text[]) END
  ), relations AS MATERIALIZED (
    SELECT c.oid, c.relkind, pg_catalog.format('%I.%I', s.name, c.relname) AS name
    FROM pg_catalog.pg_class c JOIN spaces s ON s.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'p', 'v', 'm', 'S', 'i', 'I', 'f') AND c.relname <> ALL ($4::text[])
      AND NOT EXISTS (SELECT FROM pg_catalog.pg_depend d
        WHERE d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass AND d.objid = c.oid AND d.deptype = 'e')
  ), objects AS (
    SELECT CASE relkind WHEN 'v' THEN 'view ' WHEN 'm' THEN 'materialized view ' WHEN 'S' THEN 'sequence ' WHEN 'f' THEN 'foreign table '
        WHEN 'i' THEN 'index ' WHEN 'I' THEN 'index ' ELSE 'table ' END || name AS object,
      CASE WHEN relkind IN ('v', 'm') THEN pg_catalog.pg_get_viewdef(oid)
        WHEN relkind IN ('r', 'p', 'f') THEN (
          SELECT pg_catalog.string_agg(pg_catalog.concat_ws(' ', pg_catalog.quote_ident(a.attname), pg_catalog.format_type(a.atttypid, a.atttypmod), a.attnotnull), ', '
            ORDER BY a.attname)
          FROM pg_catalog.pg_attribute a WHERE a.attrelid = relations.oid AND a.attnum > 0 AND NOT a.attisdropped)
        ELSE '' END AS definition
    FROM relations
    UNION ALL
    SELECT pg_catalog.format('constraint %I on %s', k.conname, r.name), pg_catalog.pg_get_constraintdef(k.oid)
    FROM relations r JOIN pg_catalog.pg_constraint k ON k.conrelid = r.oid WHERE k.contype IN ('c', 'f', 'p', 'u', 'x')
    UNION ALL
    SELECT pg_catalog.format('trigger %I on %s', t.tgname, r.name), t.tgenabled::text
    FROM relations r JOIN pg_catalog.pg_trigger t ON t.tgrelid = r.oid WHERE NOT t.tgisinternal
    UNION ALL
    SELECT pg_catalog.format('policy %I on %s', p.polname, r.name), ''
    FROM relations r JOIN pg_catalog.pg_policy p ON p.polrelid = r.oid
    UNION ALL
    SELECT pg_catalog.format('type %I.%I', s.name, t.typname), (
      SELECT pg_catalog.string_agg(e.enumlabel, ', ' ORDER BY e.enumsortorder) FROM pg_catalog.pg_enum e WHERE e.enumtypid = t.oid)
    FROM pg_catalog.pg_type t JOIN spaces s ON s.oid = t.typnamespace
    WHERE (t.typtype IN ('e', 'd', 'r') OR t.typtype = 'c' AND EXISTS (SELECT FROM pg_catalog.pg_class c WHERE c.oid = t.typrelid AND c.relkind = 'c'))
      AND NOT EXISTS (SELECT FROM pg_catalog.pg_depend d
        WHERE d.classid = 'pg_catalog.pg_type'::pg_catalog.regclass AND d.objid = t.oid AND d.deptype = 'e')
    UNION ALL
    SELECT pg_catalog.format('function %I.%I(%s)', s.name, f.proname,
        pg_catalog.replace(pg_catalog.pg_get_function_identity_arguments(f.oid), pg_catalog.quote_ident($1) || '.', 'public.')), f.prosrc
    FROM pg_catalog.pg_proc f JOIN spaces s ON s.oid = f.pronamespace
    WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_depend d
      WHERE d.classid = 'pg_catalog.pg_proc'::pg_catalog.regclass AND d.objid = f.oid AND d.deptype = 'e')
  )
  SELECT object, pg_catalog.left(pg_catalog.md5(pg_catalog.replace(coalesce(definition, ''), pg_catalog.quote_ident($1) || '.', 'public.')), 16)
  FROM objects LIMIT ${OBJECTS_MAX + 1}`;

/**
 * What there is now. Must be called in a transaction. Definitions are written with all names qualified, whatever the session's search path.
 * @returns undefined where there is too much, or something was dropped meanwhile
 */
export async function readObjects(session: SqlSession): Promise<Objects | undefined> {
  const { placement } = session.lease.tenant.organization;
  await session.query('SAVEPOINT objects; SET LOCAL search_path = pg_catalog');
  try {
    const rows = await session.rows(OBJECTS, parametersOf(placement));
    return rows.length > OBJECTS_MAX ? undefined : new Map(rows.map(([object, digest]) => [object ?? '', digest ?? '']));
  } catch (error) {
    if (!(error instanceof PostgresError)) throw error;
    return undefined;
  } finally {
    if (session.abortReason === undefined && !session.isLost)
      await session.query('ROLLBACK TO SAVEPOINT objects; RELEASE SAVEPOINT objects');
  }
}

function parametersOf(placement: Placement): readonly string[] {
  const { schemas, tables } = posternObjects(placement);
  return [placement.schema, String(placement.kind === 'schema'), `{${schemas.join()}}`, `{${tables.join()}}`];
}

/** What has come of one state in another. @returns undefined where one of them is not known */
export function changesBetween(before: Objects | undefined, after: Objects | undefined): ChangedObjects | undefined {
  if (before === undefined || after === undefined) return undefined;
  const changed: Record<string, string | null> = {};
  for (const [object, digest] of after) if (before.get(object) !== digest) changed[object] = digest;
  for (const object of before.keys()) if (!after.has(object)) changed[object] = null;
  return changed;
}

/**
 * Which of the objects that a migration has made or changed are not as migrations have left them.
 * @param later what the migrations behind it have changed, in the order in which they were applied
 */
export function differencesOf(
  changed: ChangedObjects,
  later: readonly ChangedObjects[],
  now: Objects,
): readonly { readonly object: string; readonly isGone: boolean }[] {
  return Object.keys(changed).flatMap((object) => {
    const last = [changed, ...later].findLast((one) => Object.hasOwn(one, object));
    const left = last?.[object] ?? null;
    if (left === null || left === now.get(object)) return [];
    return [{ object, isGone: !now.has(object) }];
  });
}
