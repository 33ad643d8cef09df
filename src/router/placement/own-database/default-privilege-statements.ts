import pg from 'pg';

const OBJECTS = {
  r: 'TABLES',
  S: 'SEQUENCES',
  f: 'FUNCTIONS',
  T: 'TYPES',
  n: 'SCHEMAS',
  L: 'LARGE OBJECTS',
} as const;

export interface DefaultPrivilege {
  readonly kind: keyof typeof OBJECTS;
  readonly schema: string | null;
  /** Whether it is granted beyond the server's defaults, or one of these is taken away. */
  readonly isGranted: boolean;
  /** null: PUBLIC. */
  readonly grantee: string | null;
  readonly privilege: string;
  readonly grantable: boolean;
}

/** How the default privileges of a role differ from the server's defaults. */
export const DEFAULT_PRIVILEGES = `
  SELECT d.defaclobjtype AS kind, n.nspname AS schema, difference.is_granted AS "isGranted",
    CASE WHEN difference.grantee <> 0 THEN pg_catalog.pg_get_userbyid(difference.grantee) END AS grantee,
    difference.privilege_type AS privilege, difference.is_grantable AS grantable
  FROM pg_catalog.pg_default_acl d LEFT JOIN pg_catalog.pg_namespace n ON n.oid = d.defaclnamespace,
    LATERAL (SELECT CASE WHEN d.defaclnamespace = 0 THEN pg_catalog.acldefault(
      CASE d.defaclobjtype WHEN 'S' THEN 's' ELSE d.defaclobjtype END, d.defaclrole) END AS acl) AS usual,
    LATERAL (
      (SELECT true AS is_granted, a.grantee, a.privilege_type, a.is_grantable FROM pg_catalog.aclexplode(d.defaclacl) a
       EXCEPT SELECT true, u.grantee, u.privilege_type, u.is_grantable FROM pg_catalog.aclexplode(usual.acl) u)
      UNION ALL
      (SELECT false, u.grantee, u.privilege_type, u.is_grantable FROM pg_catalog.aclexplode(usual.acl) u
       EXCEPT SELECT false, a.grantee, a.privilege_type, a.is_grantable FROM pg_catalog.aclexplode(d.defaclacl) a)
    ) AS difference
  WHERE d.defaclrole = pg_catalog.to_regrole($1)
  ORDER BY difference.is_granted`;

/**
 * Statements that give a role in another database the default privileges that it has in this one, except those of single schemas.
 * @param session in the database, with an empty search path
 */
export async function defaultPrivilegesOf(session: pg.Client, role: string): Promise<string[]> {
  const { rows } = await session.query<DefaultPrivilege>(DEFAULT_PRIVILEGES, [role]);
  const general = rows.filter(({ schema }) => schema === null);
  return general.map((privilege) => defaultPrivilege(role, privilege, roleName(privilege.grantee)));
}

/** @param role null: PUBLIC */
export function roleName(role: string | null): string {
  return role === null ? 'PUBLIC' : pg.escapeIdentifier(role);
}

export function undone(privilege: DefaultPrivilege): DefaultPrivilege {
  return { ...privilege, isGranted: !privilege.isGranted };
}

export function defaultPrivilege(
  role: string,
  { kind, schema, isGranted, privilege, grantable }: DefaultPrivilege,
  grantee: string,
): string {
  const place = schema === null ? '' : ` IN SCHEMA ${pg.escapeIdentifier(schema)}`;
  const change = isGranted
    ? `GRANT ${privilege} ON ${OBJECTS[kind]} TO ${grantee}${grantable ? ' WITH GRANT OPTION' : ''}`
    : `REVOKE ${privilege} ON ${OBJECTS[kind]} FROM ${grantee}`;
  return `ALTER DEFAULT PRIVILEGES FOR ROLE ${pg.escapeIdentifier(role)}${place} ${change}`;
}
