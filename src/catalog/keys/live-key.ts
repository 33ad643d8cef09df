import { SCRAM_FORMER_MAX } from '../../auth/scram.ts';
import type { Sql } from '../database/control-connection.ts';
import type { ApiKey, Organization, OrganizationStatus } from '../organizations/organization.ts';
import { noOrganization, type OrganizationRow, toOrganization } from '../organizations/organizations.ts';
import type { FormerKey, ProvableFormerKey } from './credential.ts';
import { type KeyRow, toApiKey } from './keys.ts';

/** The channel on which changes are notified. */
export const CREDENTIALS_CHANNEL = 'postern_credentials';

/** A live key and its organization, as read from the control database in one statement. */
export interface LiveKey {
  readonly organization: Organization;
  readonly key: ApiKey;
  readonly digest: Buffer;
  readonly former: readonly ProvableFormerKey[];
  /** Grows with every change of the organization's status or key. */
  readonly revision: number;
}

/** The part of it that shows whether a credential read earlier is still valid. */
export interface KeyState {
  readonly organizationId: string;
  readonly revision: number;
  readonly status: OrganizationStatus;
  /** The id of the live key; empty where there is none. */
  readonly keyId: string;
}

type KnownKeyRow = OrganizationRow & KeyRow & { readonly digest: Buffer; readonly revision: number; readonly former: string };

/** A row of {@link KnownKeyRow.former}. */
interface FormerKeyRow {
  readonly id: string;
  readonly prefix: string;
  readonly rotatedAt: string;
  readonly storedKey: string;
}

export async function loadByDigest(sql: Sql, digest: Buffer): Promise<LiveKey | FormerKey | undefined> {
  return (await load(sql, sql`k.digest = ${digest}`)) ?? (await loadFormer(sql, digest));
}

async function loadFormer(sql: Sql, digest: Buffer): Promise<FormerKey | undefined> {
  const [row] = await sql<FormerKey[]>`
    select k.id, k.organization_id as "organizationId", k.prefix, k.revoked_at as "rotatedAt"
    from postern.api_keys k join postern.organizations o on o.id = k.organization_id
    where k.digest = ${digest} and k.revoked_at is not null and o.status in ('active', 'suspended')`;
  return row;
}

export async function loadByOrganization(sql: Sql, organizationId: string): Promise<LiveKey | undefined> {
  return load(sql, sql`o.id = ${organizationId}`);
}

/** Loads keys of active organizations, and of suspended ones, which get an error that says so; see {@link Credential}. */
async function load(sql: Sql, condition: ReturnType<Sql>): Promise<LiveKey | undefined> {
  const [row] = await sql<KnownKeyRow[]>`
    select o.id, o.name, o.email, o.status, o.placement, o.created_at, o.revision,
      k.id as key_id, k.organization_id, k.prefix, k.created_at as key_created_at, k.last_used_at, k.digest,
      k.scram_iterations, k.scram_salt, k.scram_stored_key, k.scram_server_key,
      array_to_json(array(
        select json_build_object(
          'id', f.id, 'prefix', f.prefix, 'rotatedAt', f.revoked_at, 'storedKey', encode(f.scram_stored_key, 'hex'))
        from postern.api_keys f
        where f.organization_id = o.id and f.revoked_at is not null
          and f.scram_salt = k.scram_salt and f.scram_iterations = k.scram_iterations
        order by f.revoked_at desc limit ${SCRAM_FORMER_MAX}
      ))::text as former
    from postern.api_keys k join postern.organizations o on o.id = k.organization_id
    where ${condition} and k.revoked_at is null and o.status in ('active', 'suspended')`;
  return (
    row && {
      organization: toOrganization(row),
      key: toApiKey(row),
      digest: row.digest,
      former: toFormerKeys(row),
      revision: row.revision,
    }
  );
}

function toFormerKeys({ id: organizationId, former }: KnownKeyRow): ProvableFormerKey[] {
  const rows: readonly FormerKeyRow[] = JSON.parse(former);
  return rows.map(({ id, prefix, rotatedAt, storedKey }) => ({
    id,
    organizationId,
    prefix,
    rotatedAt: new Date(rotatedAt),
    storedKey: Buffer.from(storedKey, 'hex'),
  }));
}

/** The states of those organizations that exist. */
export async function loadStates(sql: Sql, organizationIds: readonly string[]): Promise<KeyState[]> {
  return sql<KeyState[]>`
    select o.id as "organizationId", o.revision, o.status, coalesce(k.id, '') as "keyId"
    from postern.organizations o left join postern.api_keys k on k.organization_id = o.id and k.revoked_at is null
    where o.id in (select jsonb_array_elements_text(${JSON.stringify(organizationIds)}::text::jsonb))`;
}

/**
 * Notifies every process of the organization's key and status, once the transaction is committed.
 * @returns the same state, so that this process need not wait for the notification
 */
export async function notifyChange(sql: Sql, organizationId: string): Promise<KeyState> {
  const [state] = await loadStates(sql, [organizationId]);
  if (state === undefined) throw noOrganization(organizationId);
  await sql`select pg_notify(${CREDENTIALS_CHANNEL}, ${JSON.stringify(state)})`;
  return state;
}

/** @returns undefined for a payload that {@link notifyChange} did not send */
export function parseChange(payload: string): KeyState | undefined {
  try {
    const { organizationId, revision, status, keyId }: Partial<KeyState> = JSON.parse(payload);
    if (organizationId === undefined || revision === undefined || status === undefined || keyId === undefined) return undefined;
    return { organizationId, revision, status, keyId };
  } catch {
    return undefined;
  }
}
