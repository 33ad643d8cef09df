import { SCRAM_FORMER_MAX } from '../../auth/scram.ts';
import { ServiceError } from '../../errors.ts';
import type { Sql } from '../database/control-connection.ts';
import type { ApiKey } from '../organizations/organization.ts';
import type { NewApiKey } from './credential.ts';

export interface RotatedKey {
  readonly key: ApiKey;
  readonly previous: { readonly id: string; readonly prefix: string; readonly invalidatedAt: Date };
}

export interface KeyRow {
  readonly key_id: string;
  readonly organization_id: string;
  readonly prefix: string;
  readonly key_created_at: Date;
  readonly last_used_at: Date | null;
  readonly scram_iterations: number;
  readonly scram_salt: Buffer;
  readonly scram_stored_key: Buffer;
  readonly scram_server_key: Buffer;
}

export function toApiKey(row: KeyRow): ApiKey {
  return {
    id: row.key_id,
    organizationId: row.organization_id,
    prefix: row.prefix,
    createdAt: row.key_created_at,
    lastUsedAt: row.last_used_at,
    verifier: {
      iterations: row.scram_iterations,
      salt: row.scram_salt,
      storedKey: row.scram_stored_key,
      serverKey: row.scram_server_key,
    },
  };
}

export async function insertKey(sql: Sql, organizationId: string, { id, prefix, digest, verifier }: NewApiKey, at: Date): Promise<ApiKey> {
  await sql`
    insert into postern.api_keys (
      id, organization_id, prefix, digest, scram_iterations, scram_salt, scram_stored_key, scram_server_key, created_at)
    values (
      ${id}, ${organizationId}, ${prefix}, ${digest}, ${verifier.iterations}, ${verifier.salt}, ${verifier.storedKey},
      ${verifier.serverKey}, ${at})`;
  return { id, organizationId, prefix, createdAt: at, lastUsedAt: null, verifier };
}

/**
 * Revokes the organization's key and inserts another. The caller holds the organization's lock. The last few former keys are
 * kept, to tell clients that still use one.
 * @param expectedKeyId the key that the caller has authenticated with; undefined: replace any
 * @throws ServiceError `unauthorized` when another key is live by now
 */
export async function replaceKey(
  sql: Sql,
  organizationId: string,
  expectedKeyId: string | undefined,
  key: NewApiKey,
  at: Date,
): Promise<RotatedKey> {
  const [previous] = await sql<{ id: string; prefix: string }[]>`
    update postern.api_keys set revoked_at = ${at}
    where organization_id = ${organizationId} and revoked_at is null ${expectedKeyId === undefined ? sql`` : sql`and id = ${expectedKeyId}`}
    returning id, prefix`;
  if (previous === undefined) throw new ServiceError('unauthorized', 'the API key is not valid: it has been rotated');
  await sql`
    delete from postern.api_keys where id in (
      select id from postern.api_keys where organization_id = ${organizationId} and revoked_at is not null
      order by revoked_at desc offset ${SCRAM_FORMER_MAX})`;
  await sql`update postern.organizations set revision = revision + 1 where id = ${organizationId}`;
  return { key: await insertKey(sql, organizationId, key, at), previous: { ...previous, invalidatedAt: at } };
}

/** The live key, as the actor of an audit entry. */
export async function findLiveKey(sql: Sql, organizationId: string): Promise<{ keyId: string; keyPrefix: string } | undefined> {
  const [row] = await sql<{ keyId: string; keyPrefix: string }[]>`
    select id as "keyId", prefix as "keyPrefix" from postern.api_keys where organization_id = ${organizationId} and revoked_at is null`;
  return row;
}

export async function deleteKeys(sql: Sql, organizationId: string): Promise<void> {
  await sql`delete from postern.api_keys where organization_id = ${organizationId}`;
}
