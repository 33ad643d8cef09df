import type pg from 'pg';

/**
 * Everything that a schema holds, one line for each object, as the server itself writes definitions with nothing in its
 * search path. The schema is written `public` whatever it is called, and a NOTIFY as one whatever it has become.
 */
export async function describeSchema(client: pg.Client, schema: string): Promise<string[]> {
  await client.query("SELECT set_config('search_path', '', false)");
  const { rows } = await client.query<{ line: string }>(DESCRIPTION, [schema]);
  await client.query('RESET search_path');
  return rows.map(({ line }) =>
    line
      .replaceAll(`${schema}.`, 'public.')
      .replaceAll(`TO '${schema}'`, `TO 'public'`)
      .replaceAll('postern.pg_notify(', 'pg_notify(')
      .replace(/\s+SELECT\s+FROM pg_notify\('(\w+)'::text, ''::text\)[^;]*;/, '\n NOTIFY $1;'),
  );
}

const DESCRIPTION = `
WITH n AS (SELECT oid FROM pg_namespace WHERE nspname = $1), lines AS (
  SELECT format('%s %s %s acl %s rls %s options %s', c.relkind, c.oid::regclass, obj_description(c.oid, 'pg_class'), c.relacl, c.relrowsecurity, c.reloptions) AS line
    FROM pg_class c, n WHERE c.relnamespace = n.oid AND c.relkind <> 'c'
  UNION ALL SELECT format('column %s.%s %s default %s not null %s identity %s generated %s collation %s %s', a.attrelid::regclass, a.attname,
      format_type(a.atttypid, a.atttypmod), pg_get_expr(d.adbin, d.adrelid), a.attnotnull, a.attidentity, a.attgenerated, a.attcollation::regcollation, col_description(a.attrelid, a.attnum))
    FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN n ON c.relnamespace = n.oid LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
    WHERE a.attnum > 0 AND NOT a.attisdropped
  UNION ALL SELECT format('constraint %s on %s %s', conname, conrelid::regclass, pg_get_constraintdef(c.oid)) FROM pg_constraint c, n WHERE connamespace = n.oid
  UNION ALL SELECT pg_get_indexdef(i.indexrelid) FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN n ON c.relnamespace = n.oid
  UNION ALL SELECT format('view %s %s', c.oid::regclass, pg_get_viewdef(c.oid)) FROM pg_class c, n WHERE c.relnamespace = n.oid AND c.relkind IN ('v', 'm')
  UNION ALL SELECT pg_get_ruledef(r.oid) FROM pg_rewrite r JOIN pg_class c ON c.oid = r.ev_class JOIN n ON c.relnamespace = n.oid
  UNION ALL SELECT pg_get_triggerdef(t.oid) FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid JOIN n ON c.relnamespace = n.oid WHERE NOT t.tgisinternal
  UNION ALL SELECT format('policy %s on %s %s %s', polname, polrelid::regclass, polroles, pg_get_expr(polqual, polrelid)) FROM pg_policy p JOIN pg_class c ON c.oid = p.polrelid JOIN n ON c.relnamespace = n.oid
  UNION ALL SELECT format('function %s acl %s %s', p.oid::regprocedure, p.proacl, CASE WHEN p.prokind <> 'a' THEN pg_get_functiondef(p.oid) END) FROM pg_proc p, n WHERE p.pronamespace = n.oid
  UNION ALL SELECT format('aggregate %s %s %s', a.aggfnoid::regprocedure, a.aggtransfn::regprocedure, a.agginitval) FROM pg_aggregate a JOIN pg_proc p ON p.oid = a.aggfnoid JOIN n ON p.pronamespace = n.oid
  UNION ALL SELECT format('operator %s %s commutator %s', o.oid::regoperator, o.oprcode::regprocedure, o.oprcom::regoperator) FROM pg_operator o, n WHERE o.oprnamespace = n.oid
  UNION ALL SELECT format('type %s %s %s default %s not null %s', t.oid::regtype, t.typtype, t.typbasetype::regtype, t.typdefault, t.typnotnull) FROM pg_type t, n WHERE t.typnamespace = n.oid
  UNION ALL SELECT format('label %s %s %s', e.enumtypid::regtype, e.enumsortorder, e.enumlabel) FROM pg_enum e JOIN pg_type t ON t.oid = e.enumtypid JOIN n ON t.typnamespace = n.oid
  UNION ALL SELECT format('sequence %s %s %s %s', s.seqrelid::regclass, s.seqtypid::regtype, s.seqstart, s.seqincrement) FROM pg_sequence s JOIN pg_class c ON c.oid = s.seqrelid JOIN n ON c.relnamespace = n.oid
  UNION ALL SELECT format('partition %s of %s %s', i.inhrelid::regclass, i.inhparent::regclass, pg_get_expr(c.relpartbound, c.oid)) FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid JOIN n ON c.relnamespace = n.oid
  UNION ALL SELECT pg_get_statisticsobjdef(s.oid) FROM pg_statistic_ext s, n WHERE s.stxnamespace = n.oid
  UNION ALL SELECT format('collation %s %s', c.oid::regcollation, c.collcollate) FROM pg_collation c, n WHERE c.collnamespace = n.oid
  UNION ALL SELECT format('cast %s %s', c.castsource::regtype, c.casttarget::regtype) FROM pg_cast c WHERE c.oid >= 16384
  UNION ALL SELECT format('default privileges %s %s', d.defaclobjtype, d.defaclacl) FROM pg_default_acl d, n WHERE d.defaclnamespace = n.oid
)
SELECT line FROM lines WHERE line IS NOT NULL ORDER BY line COLLATE "C"`;
