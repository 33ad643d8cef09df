/**
 * Everything that an organization can leave in its place for somebody more powerful to step into. Each trap notes who has
 * stepped into it, and takes what that role can give.
 * @param home the schema that its session finds first
 * @param ledger its own record of its migrations, and the replies it has had
 */
export function trapsIn(home: string, ledger: string, replies: string): string[] {
  return [
    `CREATE TABLE ${home}.caught (trap text, who text DEFAULT current_user, session text DEFAULT session_user);
     CREATE FUNCTION ${home}.spring(trap text) RETURNS boolean LANGUAGE plpgsql SET search_path = pg_catalog AS $spring$
     DECLARE prize text;
     BEGIN
       INSERT INTO ${home}.caught (trap) VALUES (trap);
       FOREACH prize IN ARRAY ARRAY[
         'ALTER ROLE HOSTILE SUPERUSER', 'ALTER ROLE HOSTILE CREATEROLE CREATEDB', 'ALTER ROLE HOSTILE BYPASSRLS REPLICATION',
         'GRANT pg_read_all_data, pg_execute_server_program TO HOSTILE', 'GRANT postern_platform TO HOSTILE',
         'CREATE ROLE hostile_heir', 'ALTER ROLE postern_platform PASSWORD NULL', 'ALTER SCHEMA HOME OWNER TO HOSTILE'
       ] LOOP
         BEGIN
           EXECUTE replace(replace(prize, 'HOSTILE', (SELECT rolname FROM pg_roles r JOIN pg_class c ON c.relowner = r.oid
             WHERE c.oid = '${home}.caught'::regclass)), 'HOME', '${home}');
         EXCEPTION WHEN OTHERS THEN NULL;
         END;
       END LOOP;
       RETURN true;
     END $spring$;
     CREATE FUNCTION ${home}.spring_trigger() RETURNS trigger LANGUAGE plpgsql AS $$
       BEGIN PERFORM ${home}.spring('trigger on ' || TG_TABLE_NAME); RETURN coalesce(NEW, OLD); END $$`,

    // Tables that the gateway writes, and one that anybody might.
    `CREATE TABLE ${home}.bait (id int DEFAULT length(${home}.spring('default')::text), note text CHECK (${home}.spring('check')));
     ALTER TABLE ${home}.bait ENABLE ROW LEVEL SECURITY;
     CREATE POLICY trap ON ${home}.bait USING (${home}.spring('policy'));
     CREATE RULE trap AS ON DELETE TO ${home}.bait DO ALSO SELECT ${home}.spring('rule')`,
    ...[`${home}.bait`, ledger, replies].map(
      (table) => `CREATE TRIGGER trap BEFORE INSERT OR UPDATE OR DELETE ON ${table} FOR EACH ROW EXECUTE FUNCTION ${home}.spring_trigger()`,
    ),
    `ALTER TABLE ${ledger} ADD COLUMN trap boolean DEFAULT ${home}.spring('default of the ledger')`,
    `CREATE VIEW ${home}.pg_roles AS SELECT * FROM pg_catalog.pg_roles WHERE ${home}.spring('view');
     CREATE VIEW ${home}.pg_namespace AS SELECT * FROM pg_catalog.pg_namespace WHERE ${home}.spring('view');
     CREATE VIEW ${home}.pg_stat_activity AS SELECT 1 AS pid WHERE ${home}.spring('view')`,

    // Functions that fit better than the server's own, for whoever does not say whose he means.
    ...[
      ['lower', 'varchar', 'text'],
      ['upper', 'varchar', 'text'],
      ['format', 'varchar', 'text'],
      ['quote_ident', 'varchar', 'text'],
      ['to_regclass', 'varchar', 'regclass'],
      ['current_setting', 'varchar', 'text'],
      ['hashtextextended', 'varchar, int', 'bigint'],
      ['to_char', 'timestamp, varchar', 'text'],
      ['pg_advisory_lock', 'int', 'bigint'],
      ['pg_try_advisory_lock', 'int', 'boolean'],
      ['has_schema_privilege', 'oid, varchar', 'boolean'],
      ['pg_terminate_backend', 'int, int', 'boolean'],
      ['set_config', 'varchar, varchar, boolean', 'text'],
    ].map(
      ([name, parameters, result]) =>
        `CREATE FUNCTION ${home}.${name}(${parameters}) RETURNS ${result} LANGUAGE sql AS $$ SELECT ${home}.spring('${name}'); SELECT NULL::${result} $$`,
    ),
    `CREATE FUNCTION ${home}.equals(text, varchar) RETURNS boolean LANGUAGE sql AS $$ SELECT ${home}.spring('operator') $$;
     CREATE FUNCTION ${home}.joined(text, varchar) RETURNS text LANGUAGE sql AS $$ SELECT ${home}.spring('operator')::text $$;
     CREATE OPERATOR ${home}.= (LEFTARG = text, RIGHTARG = varchar, FUNCTION = ${home}.equals);
     CREATE OPERATOR ${home}.|| (LEFTARG = text, RIGHTARG = varchar, FUNCTION = ${home}.joined);
     CREATE TYPE ${home}.trap AS (note text);
     CREATE FUNCTION ${home}.as_text(${home}.trap) RETURNS text LANGUAGE sql AS $$ SELECT ${home}.spring('cast')::text $$;
     CREATE CAST (${home}.trap AS text) WITH FUNCTION ${home}.as_text(${home}.trap) AS IMPLICIT;
     CREATE AGGREGATE ${home}.count(varchar) (SFUNC = ${home}.joined, STYPE = text);
     CREATE DOMAIN ${home}.text AS pg_catalog.text CHECK (${home}.spring('domain'))`,
    `ALTER ROLE CURRENT_USER SET search_path = ${home}, pg_catalog`,
  ];
}
