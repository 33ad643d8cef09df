import pg from 'pg';
import type { Placement } from '../catalog/organization.ts';
import { posternTable } from '../sql/postern-tables.ts';
import { forClone } from './definitions/clone-names.ts';
import { isClone } from './definitions/restore-definitions.ts';
import { POSTERN_TABLES, type PosternTableName } from './postern-tables.ts';

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
export interface CopiedSequence {
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
