import { SCRAM_FORMER_MAX, type ScramVerifier } from '../auth/scram.ts';
import { ServiceError } from '../errors.ts';
import type { Sql } from './control-pool.ts';

/** How many live keys an organization may have. Each login compares the client's proof with all of them. */
export const KEYS_MAX = 100;

/** What a sign-up's key is, and one that an operator issues. */
export const FIRST_KEY: KeyDetails = { name: 'first key', scope: 'admin', expiresAt: null, networks: null };

/** A key in the JSON of {@link keyJson}; bytes are hexadecimal. */
export interface KeyJson extends Omit<ApiKey, 'createdAt' | 'lastUsedAt' | 'expiresAt' | 'verifier'> {
  readonly createdAt: string;
  readonly lastUsedAt: string | null;
  readonly expiresAt: string | null;
  readonly iterations: number;
  readonly salt: string;
  readonly storedKey: string;
  readonly serverKey: string;
  readonly digest: string;
  readonly version: number;
  readonly expiresInMs: number | null;
}

/** Whether the row `k` of the keys is valid, by the control server's clock. */
export function isLive(sql: Sql): ReturnType<Sql> {
  return sql`(k.revoked_at is null and (k.expires_at is null or k.expires_at > clock_timestamp()))`;
}

/** The row `k` of the keys as {@link KeyJson}. */
export function keyJson(sql: Sql): ReturnType<Sql> {
  return sql`json_build_object(
    'id', k.id, 'organizationId', k.organization_id, 'prefix', k.prefix, 'name', k.name, 'scope', k.scope, 'createdAt', k.created_at,
    'createdBy', k.created_by, 'lastUsedAt', k.last_used_at, 'expiresAt', k.expires_at, 'networks', k.networks, 'replacedBy', k.replaced_by,
    'iterations', k.scram_iterations, 'salt', encode(k.scram_salt, 'hex'), 'storedKey', encode(k.scram_stored_key, 'hex'),
    'serverKey', encode(k.scram_server_key, 'hex'), 'digest', encode(k.digest, 'hex'), 'version', k.version,
    'expiresInMs', ${expiresInMs(sql)})`;
}

export function expiresInMs(sql: Sql): ReturnType<Sql> {
  return sql`ceil(extract(epoch from k.expires_at - clock_timestamp()) * 1000)`;
}

/** Why the row `k` of the keys is not valid any more. Keys of earlier versions ended by rotation, without a reason. */
export function endOf(sql: Sql): ReturnType<Sql> {
  return sql`case
    when k.end_reason is not null then k.end_reason
    when k.revoked_at is not null or k.replaced_by is not null then 'rotated'
    else 'expired' end`;
}

export function toApiKey(json: KeyJson): ApiKey {
  const { id, organizationId, prefix, name, scope, createdBy, networks, replacedBy } = json;
  const bytes = (hex: string) => Buffer.from(hex, 'hex');
  const time = (text: string | null) => (text === null ? null : new Date(text));
  return {
    id,
    organizationId,
    prefix,
    name,
    scope,
    createdAt: new Date(json.createdAt),
    createdBy,
    lastUsedAt: time(json.lastUsedAt),
    expiresAt: time(json.expiresAt),
    networks,
    replacedBy,
    verifier: {
      iterations: json.iterations,
      salt: bytes(json.salt),
      storedKey: bytes(json.storedKey),
      serverKey: bytes(json.serverKey),
    },
  };
}

/** @returns the live keys, the oldest first */
export async function listKeys(sql: Sql, organizationId: string): Promise<ApiKey[]> {
  const rows = await sql<{ key: string }[]>`
    select ${keyJson(sql)}::text as key from postern.api_keys k
    where k.organization_id = ${organizationId} and ${isLive(sql)} order by k.created_at, k.id`;
  return rows.map(({ key }) => toApiKey(JSON.parse(key)));
}

export async function insertKey(
  sql: Sql,
  organizationId: string,
  { id, prefix, digest, verifier }: NewApiKey,
  { name, scope, expiresAt, networks }: KeyDetails,
  { at, createdBy = null }: { readonly at: Date; readonly createdBy?: string | null },
): Promise<ApiKey> {
  await sql`
    insert into postern.api_keys (
      id, organization_id, prefix, digest, scram_iterations, scram_salt, scram_stored_key, scram_server_key, created_at, name, scope,
      expires_at, networks, created_by)
    values (
      ${id}, ${organizationId}, ${prefix}, ${digest}, ${verifier.iterations}, ${verifier.salt}, ${verifier.storedKey},
      ${verifier.serverKey}, ${at}, ${name}, ${scope}, ${expiresAt}, ${networksJson(networks)}::text::json, ${createdBy})`;
  return {
    id,
    organizationId,
    prefix,
    name,
    scope,
    createdAt: at,
    createdBy,
    lastUsedAt: null,
    expiresAt,
    networks,
    replacedBy: null,
    verifier,
  };
}

/** Changes a live key. When its networks change, sessions that were opened with it end. */
export async function updateKey(sql: Sql, keyId: string, { name, expiresAt, networks }: KeyDetails): Promise<void> {
  await sql`
    update postern.api_keys set name = ${name}, expires_at = ${expiresAt}, networks = ${networksJson(networks)}::text::json,
      version = version + case when networks::text is distinct from ${networksJson(networks)}::text then 1 else 0 end
    where id = ${keyId}`;
}

function networksJson(networks: readonly string[] | null): string | null {
  return networks && JSON.stringify(networks);
}

export async function endKey(sql: Sql, keyId: string, end: 'rotated' | 'revoked', at: Date): Promise<void> {
  await sql`update postern.api_keys set revoked_at = ${at}, end_reason = ${end} where id = ${keyId}`;
}

/** Lets another key take its place. @returns when it ends */
export async function endKeyLater(sql: Sql, keyId: string, successorId: string, graceS: number): Promise<Date> {
  const [row] = await sql<{ endsAt: Date }[]>`
    update postern.api_keys
    set replaced_by = ${successorId},
      expires_at = least(expires_at, clock_timestamp() + make_interval(secs => ${graceS}))
    where id = ${keyId} returning expires_at as "endsAt"`;
  if (row === undefined) throw noKey();
  return row.endsAt;
}

/** Counts the change, and records that expired keys have ended. The last few former keys are kept, to tell clients that still use one. */
export async function finishKeyChange(sql: Sql, organizationId: string): Promise<void> {
  await sql`
    update postern.api_keys
    set revoked_at = expires_at, end_reason = case when replaced_by is null then 'expired' else 'rotated' end
    where organization_id = ${organizationId} and revoked_at is null and expires_at <= clock_timestamp()`;
  await sql`
    delete from postern.api_keys where id in (
      select id from postern.api_keys where organization_id = ${organizationId} and revoked_at is not null
      order by revoked_at desc offset ${SCRAM_FORMER_MAX})`;
  await sql`update postern.organizations set revision = revision + 1 where id = ${organizationId}`;
}

/** @throws ServiceError `invalid_request` when a key would expire at once, by the control server's clock */
export async function checkExpiry(sql: Sql, expiresAt: Date | null): Promise<void> {
  const [row] = await sql<{ isPast: boolean }[]>`select coalesce(${expiresAt}::timestamptz <= clock_timestamp(), false) as "isPast"`;
  if (row?.isPast) throw new ServiceError('invalid_request', 'expiresAt: must be in the future');
}

export function noKey(): ServiceError {
  return new ServiceError('not_found', 'the organization has no such key');
}

/** The first live key, as the actor of an audit entry. */
export async function findFirstKey(sql: Sql, organizationId: string): Promise<{ keyId: string; keyPrefix: string } | undefined> {
  const [key] = await listKeys(sql, organizationId);
  return key && { keyId: key.id, keyPrefix: key.prefix };
}

export async function deleteKeys(sql: Sql, organizationId: string): Promise<void> {
  await sql`delete from postern.api_keys where organization_id = ${organizationId}`;
}

/** Scopes whose keys log in as roles that own nothing, one for each scope. */
export const RESTRICTED_SCOPES = ['read', 'data'] as const;
export type RestrictedScope = (typeof RESTRICTED_SCOPES)[number];

/**
 * What a key may do, each with what the next may: `admin` manage keys, `write` run SQL as the organization's own role, `data` change rows,
 * `read` read them.
 */
export type KeyScope = 'admin' | 'write' | RestrictedScope;

/** The part of a key that its organization chooses. */
export interface KeyDetails {
  readonly name: string;
  readonly scope: KeyScope;
  readonly expiresAt: Date | null;
  /** The networks that it may be used from, in CIDR notation; null: from everywhere. */
  readonly networks: readonly string[] | null;
}

/** An API key as the catalog stores it, without the key itself. */
export interface ApiKey extends KeyDetails {
  /** `key_` and 12 of `[a-z0-9]`. */
  readonly id: string;
  readonly organizationId: string;
  /** The key's first characters, by which people distinguish keys. */
  readonly prefix: string;
  readonly createdAt: Date;
  /** The key that has made it; null: the sign-up or an operator. */
  readonly createdBy: string | null;
  readonly lastUsedAt: Date | null;
  /** The key that takes its place. This one is valid until `expiresAt`. */
  readonly replacedBy: string | null;
  readonly verifier: ScramVerifier;
}

/** A new key for the catalog: what is stored of it besides its details. The key itself is not stored. */
export interface NewApiKey {
  /** `key_` and 12 of `[a-z0-9]`. */
  readonly id: string;
  /** The key's first characters, by which people distinguish keys. */
  readonly prefix: string;
  /** SHA-256 of the key. */
  readonly digest: Buffer;
  readonly verifier: ScramVerifier;
}
