import pg from 'pg';
import type { Placement } from '../catalog/organization.ts';
import { ServiceError } from '../errors.ts';
import type { Platform } from '../placement/cluster.ts';
import { posternTable } from '../sql/postern-tables.ts';
import { forClone } from './clone-names.ts';
import { isClone, POSTERN_TABLES, type PosternTableName } from './definitions.ts';

/** A table whose rows are copied; names are qualified and quoted. */
export interface CopiedTable {
  readonly from: string;
  readonly to: string;
  /** Quoted, in the order of the table; without generated ones. */
  readonly columns: readonly string[];
  /** The same ones, by their names in the copy. */
  readonly copiedColumns: readonly string[];
  /** Whether logical replication can tell its rows apart: it has a primary key, or an index that is its replica identity. */
  readonly hasIdentity: boolean;
}

/** A sequence whose value is carried over. */
interface CopiedSequence {
  readonly from: string;
  readonly to: string;
}

export interface Contents {
  readonly tables: readonly CopiedTable[];
  readonly sequences: readonly CopiedSequence[];
  /** Materialized views that have rows, in the order of their creation, by their names in the copy. */
  readonly views: readonly string[];
  /** The Postern tables that there are. */
  readonly posternTables: readonly PosternTableName[];
}

interface Relation {
  readonly schema: string;
  readonly name: string;
  readonly kind: 'r' | 'S' | 'm';
  readonly populated: boolean;
  readonly columns: readonly string[];
  readonly hasIdentity: boolean;
}

/** Tables, sequences except those of Postern's tables, and materialized views: of one schema, or of all. */
const RELATIONS = `
  SELECT n.nspname AS schema, c.relname AS name, c.relkind AS kind, c.relispopulated AS populated,
    ARRAY(SELECT a.attname::text FROM pg_catalog.pg_attribute a
      WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '' ORDER BY a.attnum) AS columns,
    c.relpersistence = 'p' AND c.relreplident <> 'n' AND EXISTS (SELECT FROM pg_catalog.pg_index i
      WHERE i.indrelid = c.oid AND i.indisvalid AND i.indimmediate
        AND CASE c.relreplident WHEN 'i' THEN i.indisreplident ELSE i.indisprimary END) AS "hasIdentity"
  FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
  WHERE n.nspname = coalesce($1, n.nspname) AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'
    AND c.relkind = ANY ('{r,S,m}') AND c.relname <> ALL ($2)
    AND NOT EXISTS (SELECT FROM pg_catalog.pg_depend d
      WHERE d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass AND d.objid = c.oid AND d.deptype = 'e')
    AND NOT EXISTS (
      SELECT FROM pg_catalog.pg_depend d JOIN pg_catalog.pg_class t ON t.oid = d.refobjid AND t.relname = ANY ($2)
      WHERE d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass AND d.objid = c.oid AND d.deptype IN ('a', 'i') AND c.relkind = 'S')
  ORDER BY c.oid`;

const quoted = (schema: string, name: string) => `${pg.escapeIdentifier(schema)}.${pg.escapeIdentifier(name)}`;

/**
 * What has to be copied.
 * @param client of the organization's own role at the source
 * @param schema what the copied schema is called at the target while it is copied; undefined: all schemas keep their names
 */
export async function readContents(client: pg.Client, source: Placement, target: Placement, schema: string | undefined): Promise<Contents> {
  const own = source.kind === 'schema' ? POSTERN_TABLES.map((name) => `postern_${name}`) : [];
  const { rows } = await client.query<Relation>(RELATIONS, [schema === undefined ? null : source.schema, own]);
  const of = (kind: Relation['kind']) => rows.filter((relation) => relation.kind === kind);
  // As in the definitions, where a name is like any other identifier.
  const copied = (name: string) => (isClone(source, target) ? forClone(name, source, target) : name);
  const names = (relation: Relation) => ({
    from: quoted(relation.schema, relation.name),
    to: copied(quoted(schema ?? relation.schema, relation.name)),
  });
  const namesOfColumns = (unquoted: readonly string[]) => {
    const columns = unquoted.map(pg.escapeIdentifier);
    return { columns, copiedColumns: columns.map(copied) };
  };
  const tables: CopiedTable[] = of('r').map((relation) => ({
    ...names(relation),
    ...namesOfColumns(relation.columns),
    hasIdentity: relation.hasIdentity,
  }));
  const posternTables: PosternTableName[] = [];
  for (const name of schema === undefined ? [] : POSTERN_TABLES) {
    const from = posternTable(source, name).name;
    const columns = await columnsOf(client, from);
    if (columns.length === 0) continue;
    posternTables.push(name);
    tables.push({ from, to: posternTable(target, name).name, ...namesOfColumns(columns), hasIdentity: false });
  }
  return {
    tables,
    sequences: of('S').map(names),
    views: of('m').flatMap((relation) => (relation.populated ? [names(relation).to] : [])),
    posternTables,
  };
}

async function columnsOf(client: pg.Client, table: string): Promise<string[]> {
  const { rows } = await client.query<{ name: string }>(
    `SELECT attname::text AS name FROM pg_catalog.pg_attribute
     WHERE attrelid = pg_catalog.to_regclass($1) AND attnum > 0 AND NOT attisdropped AND attgenerated = '' ORDER BY attnum`,
    [table],
  );
  return rows.map(({ name }) => name);
}

/** Whether an object has not been made together with another one, as the constructors of a range type are, or what an extension has. */
const onItsOwn = (catalog: string, oid: string) => `NOT EXISTS (SELECT FROM pg_catalog.pg_depend i
  WHERE i.classid = 'pg_catalog.${catalog}'::pg_catalog.regclass AND i.objid = ${oid} AND i.deptype IN ('i', 'e'))`;

interface Obstacle {
  readonly what: string;
  /** The kind of placement that can have it. */
  readonly only?: Placement['kind'];
  /** Between which placements of the same kind it cannot be carried either: all, schemas, or a schema and another one of another name. */
  readonly also?: 'all' | 'schemas' | 'other name';
  readonly names: string;
}

/** What cannot be carried to another placement, each with a query for the names of what there is. */
const OBSTACLES: readonly Obstacle[] = [
  {
    what: 'schemas besides public',
    only: 'database',
    names: `SELECT nspname AS name FROM pg_catalog.pg_namespace
      WHERE nspname !~ '^pg_' AND nspname <> ALL (ARRAY['information_schema', 'postern', $1])`,
  },
  {
    what: 'tables of your own in the schema postern',
    only: 'database',
    names: `SELECT c.relname AS name FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
      WHERE n.nspname = 'postern' AND c.relkind <> ALL ('{i,S,t}') AND c.relname <> ALL ('{migrations,idempotency_keys}') AND $1 <> ''`,
  },
  {
    what: 'extensions',
    only: 'database',
    names: `SELECT extname AS name FROM pg_catalog.pg_extension WHERE extname <> 'plpgsql' AND $1 <> ''`,
  },
  {
    what: 'publications',
    only: 'database',
    names: `SELECT pubname AS name FROM pg_catalog.pg_publication WHERE $1 <> ''`,
  },
  {
    what: 'foreign servers',
    only: 'database',
    names: `SELECT srvname AS name FROM pg_catalog.pg_foreign_server WHERE $1 <> ''`,
  },
  {
    what: 'large objects',
    only: 'database',
    also: 'all',
    names: `SELECT oid::text AS name FROM pg_catalog.pg_largeobject_metadata WHERE $1 <> '' LIMIT 3`,
  },
  {
    what: 'casts',
    also: 'schemas',
    names: `SELECT pg_catalog.format_type(k.castsource, NULL) || ' AS ' || pg_catalog.format_type(k.casttarget, NULL) AS name
      FROM pg_catalog.pg_cast k, pg_catalog.pg_type t JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace
      WHERE t.oid IN (k.castsource, k.casttarget) AND n.nspname = $1 AND ${onItsOwn('pg_cast', 'k.oid')}`,
  },
  {
    what: 'objects of other owners',
    names: `SELECT c.relname AS name FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
      WHERE n.nspname = $1 AND pg_catalog.pg_get_userbyid(c.relowner) <> current_user AND ${onItsOwn('pg_class', 'c.oid')}
      UNION ALL
      SELECT p.proname FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
      WHERE n.nspname = $1 AND pg_catalog.pg_get_userbyid(p.proowner) <> current_user AND ${onItsOwn('pg_proc', 'p.oid')}`,
  },
  {
    what: 'tables with FORCE ROW LEVEL SECURITY',
    also: 'all',
    names: `SELECT c.relname AS name FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
      WHERE ($1 = 'public' OR n.nspname = $1) AND pg_catalog.pg_get_userbyid(c.relowner) = current_user AND c.relforcerowsecurity`,
  },
  {
    what: 'columns whose values name objects',
    also: 'other name',
    names: `SELECT c.relname || '.' || a.attname AS name
      FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid
        JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
      WHERE n.nspname = $1 AND c.relkind IN ('r', 'p') AND a.attnum > 0 AND NOT a.attisdropped
        AND t.typname ~ '^_?reg(class|proc|procedure|oper|operator|type|config|dictionary|collation|namespace)$'
        AND t.typnamespace = 'pg_catalog'::pg_catalog.regnamespace`,
  },
  {
    what: 'functions that use channels or large objects in the way of the schema placement',
    only: 'schema',
    names: `SELECT p.proname AS name FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
      WHERE n.nspname = $1 AND p.prosrc ~ '\\mpostern\\.'`,
  },
];

const NAMED_MAX = 5;

/** @throws ServiceError `unsupported_statement` that names what cannot be carried */
export async function checkForObstacles(client: pg.Client, source: Placement, target: Placement): Promise<void> {
  const found: string[] = [];
  for (const { what, only, also, names } of OBSTACLES) {
    if ((only !== undefined && only !== source.kind) || !isObstacle(also, source, target)) continue;
    const { rows } = await client.query<{ name: string }>(names, [source.schema]);
    if (rows.length === 0) continue;
    const named = rows.slice(0, NAMED_MAX).map(({ name }) => name);
    found.push(`${what} (${named.join(', ')}${rows.length > NAMED_MAX ? ', …' : ''})`);
  }
  const other = source.role === target.role ? 'the other placement' : 'a clone in the schema placement';
  if (found.length > 0) throw new ServiceError('unsupported_statement', `${other} cannot have ${found.join('; ')}`);
}

function isObstacle(also: Obstacle['also'], source: Placement, target: Placement): boolean {
  if (source.kind !== target.kind || also === 'all') return true;
  if (source.kind === 'database' || also === undefined) return false;
  return also === 'schemas' || source.schema !== target.schema;
}

/** Organizations in a schema cannot see who owns large objects. @throws ServiceError `unsupported_statement` if one owns any */
export async function checkLargeObjects(platform: Platform, { role }: Placement): Promise<void> {
  const { rows } = await platform.runInShared((session) =>
    session.query(
      `SELECT FROM pg_catalog.pg_shdepend WHERE classid = 'pg_catalog.pg_largeobject'::pg_catalog.regclass
         AND refobjid = pg_catalog.to_regrole($1)
         AND dbid = (SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database()) LIMIT 1`,
      [pg.escapeIdentifier(role)],
    ),
  );
  if (rows.length > 0) throw new ServiceError('unsupported_statement', 'large objects cannot be copied');
}
