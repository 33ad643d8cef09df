import type pg from 'pg';
import type { Placement } from '../../catalog/organization.ts';
import { ServiceError } from '../../errors.ts';
import { clientSearchPath, type SchemaTarget } from '../../rewriting/names.ts';
import { clientText, SchemaRewriter } from '../../rewriting/rewriter.ts';
import { TimeSlices } from '../../runtime/event-loop.ts';
import { eachStatement } from '../../syntax/statements.ts';

/** The schema itself is made by Postern, with rights that differ between the placements. */
const ABOUT_SCHEMA = /^(?:(?:CREATE|ALTER|COMMENT ON) SCHEMA |(?:GRANT|REVOKE) [A-Z, ]+ ON SCHEMA )(\w+)/;

/** Commands of psql, at the beginning and at the end of what a pg_dump since August 2025 writes. */
const RESTRICT = /^((?:--.*\n|\n)*)\\restrict .*\n/;
const UNRESTRICT = /\n\\unrestrict .*\s*$/;

/** The statements of a dump, without those about a schema. */
export async function statementsOf(dump: string, schema: string): Promise<string[]> {
  const script = dump.replace(RESTRICT, '$1').replace(UNRESTRICT, '\n');
  const statements: string[] = [];
  const slices = new TimeSlices();
  for (const statement of eachStatement(script)) {
    await slices.pause();
    if (statement !== undefined && ABOUT_SCHEMA.exec(statement.text)?.[1] !== schema) statements.push(statement.text);
  }
  return statements;
}

/** The same statement for an organization in a schema, as the wire door would run it. */
export function inSchema(statement: string, target: SchemaTarget): string {
  return new SchemaRewriter(target).rewrite(statement).sql;
}

export function isClone(from: Placement, to: Placement): boolean {
  return from.role !== to.role;
}

/**
 * @param client of the organization's own role
 * @param schema that clients know as `public`
 * @throws ServiceError `invalid_request` with the statement that failed
 */
export async function runDefinitions(client: pg.Client, statements: readonly string[], schema: string): Promise<void> {
  for (const statement of statements) {
    await client.query(statement).catch((cause: unknown) => {
      const reason = cause instanceof Error ? cause.message : String(cause);
      const [first = ''] = statement.split('\n', 1);
      const message = `a definition cannot be carried: ${reason} (${first.slice(0, 200)})`;
      throw new ServiceError('invalid_request', clientText(message, schema), { cause });
    });
  }
}

interface Routine {
  readonly definition: string;
}

/** Functions whose text names the schema; what is parsed when it is created needs no change. */
const NAMING = `
  SELECT pg_catalog.pg_get_functiondef(p.oid) AS definition
  FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
  WHERE n.nspname = 'public' AND p.prokind <> 'a'
    AND (pg_catalog.strpos(p.prosrc, $1) > 0 OR pg_catalog.strpos(pg_catalog.array_to_string(p.proconfig, ','), $1) > 0)`;

const SETS_SEARCH_PATH = /^ SET search_path TO .*$/m;

/** Has functions name `public` after the organization's schema has got that name. */
export async function renameInRoutines(client: pg.Client, { schema }: Placement): Promise<void> {
  const { rows } = await client.query<Routine>(NAMING, [schema]);
  const renamed = rows.map(({ definition }) =>
    clientText(definition, schema).replace(SETS_SEARCH_PATH, (line) =>
      line.replace(/'([^']*)'/g, (_, value: string) => `'${clientSearchPath(value, schema)}'`),
    ),
  );
  await runDefinitions(client, renamed, schema);
}
