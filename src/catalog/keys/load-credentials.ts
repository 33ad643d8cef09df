import { SCRAM_FORMER_MAX } from '../../auth/scram.ts';
import type { Sql } from '../database/control-connection.ts';
import type { Organization } from '../organizations/organization.ts';
import { type OrganizationRow, toOrganization } from '../organizations/organization-rows.ts';
import { pausedForMs } from '../organizations/pause-registry.ts';
import type { ApiKey } from './api-key.ts';
import type { FormerKey, ProvableFormerKey, SaltOfKeys } from './credential.ts';
import { endOf, isLive, type KeyJson, keyJson, toApiKey } from './key-rows.ts';
import type { KeyState, KeyValidity } from './key-state-notifications.ts';

export interface LiveKey extends KeyValidity {
  readonly key: ApiKey;
  readonly digest: Buffer;
}

/** An organization and its live keys, as read from the control database in one statement. */
export interface LiveKeys {
  readonly organization: Organization;
  readonly salt: SaltOfKeys;
  /** The oldest first. */
  readonly keys: readonly LiveKey[];
  readonly former: readonly ProvableFormerKey[];
  /** Grows with every change of the organization or its keys. */
  readonly revision: number;
  /** See {@link KeyState}. */
  readonly pausedForMs: number | null;
}

type LiveKeysRow = OrganizationRow & {
  readonly revision: number;
  readonly paused_for_ms: number | null;
  readonly source_id: string | null;
  readonly salt: Buffer;
  readonly iterations: number;
  /** JSON of {@link KeyJson}. */
  readonly keys: string;
  /** JSON of {@link FormerKeyJson}. */
  readonly former: string;
};

interface FormerKeyJson extends Omit<ProvableFormerKey, 'organizationId' | 'endedAt' | 'storedKey'> {
  readonly endedAt: string;
  readonly storedKey: string;
}

export async function loadByDigest(sql: Sql, digest: Buffer): Promise<LiveKeys | FormerKey | undefined> {
  const holder = sql`select k.organization_id from postern.api_keys k where k.digest = ${digest} and ${isLive(sql)}`;
  return (await load(sql, sql`o.id = (${holder})`)) ?? (await loadFormer(sql, digest));
}

async function loadFormer(sql: Sql, digest: Buffer): Promise<FormerKey | undefined> {
  const [row] = await sql<FormerKey[]>`
    select k.id, k.organization_id as "organizationId", k.prefix, ${endOf(sql)} as "end", coalesce(k.revoked_at, k.expires_at) as "endedAt"
    from postern.api_keys k join postern.organizations o on o.id = k.organization_id
    where k.digest = ${digest} and not ${isLive(sql)} and o.status in ('active', 'suspended')`;
  return row;
}

export async function loadByOrganization(sql: Sql, organizationId: string): Promise<LiveKeys | undefined> {
  return load(sql, sql`o.id = ${organizationId}`);
}

/** Loads keys of active organizations, and of suspended ones, which get an error that says so; see {@link Credential}. */
async function load(sql: Sql, condition: ReturnType<Sql>): Promise<LiveKeys | undefined> {
  const [row] = await sql<LiveKeysRow[]>`
    select o.id, o.name, o.email, o.status, o.placement, o.created_at, o.revision, ${pausedForMs(sql)} as paused_for_ms,
      (select c.source_id from postern.clones c where c.organization_id = o.id) as source_id,
      first.scram_salt as salt, first.scram_iterations as iterations,
      array_to_json(array(
        select ${keyJson(sql)} from postern.api_keys k
        where k.organization_id = o.id and ${isLive(sql)}
        order by k.created_at, k.id
      ))::text as keys,
      array_to_json(array(
        select json_build_object('id', k.id, 'prefix', k.prefix, 'end', ${endOf(sql)}, 'endedAt', coalesce(k.revoked_at, k.expires_at),
          'storedKey', encode(k.scram_stored_key, 'hex'))
        from postern.api_keys k
        where k.organization_id = o.id and not ${isLive(sql)}
          and k.scram_salt = first.scram_salt and k.scram_iterations = first.scram_iterations
        order by coalesce(k.revoked_at, k.expires_at) desc limit ${SCRAM_FORMER_MAX}
      ))::text as former
    from postern.organizations o join lateral (
      select k.scram_salt, k.scram_iterations from postern.api_keys k
      where k.organization_id = o.id order by (k.revoked_at is null) desc, k.created_at, k.id limit 1
    ) as first on true
    where ${condition} and o.status in ('active', 'suspended')`;
  return row && toLiveKeys(row);
}

function toLiveKeys(row: LiveKeysRow): LiveKeys {
  const keys: readonly KeyJson[] = JSON.parse(row.keys);
  const former: readonly FormerKeyJson[] = JSON.parse(row.former);
  return {
    organization: { ...toOrganization(row), ...(row.source_id === null ? {} : { sourceId: row.source_id }) },
    salt: { salt: row.salt, iterations: row.iterations },
    keys: keys.map((key) => ({
      id: key.id,
      key: toApiKey(key),
      digest: Buffer.from(key.digest, 'hex'),
      version: key.version,
      expiresInMs: key.expiresInMs,
    })),
    former: former.map(({ endedAt, storedKey, ...rest }) => ({
      ...rest,
      organizationId: row.id,
      endedAt: new Date(endedAt),
      storedKey: Buffer.from(storedKey, 'hex'),
    })),
    revision: row.revision,
    pausedForMs: row.paused_for_ms,
  };
}

/** What a read found of an organization's state. */
export function stateOf({ organization, revision, keys, former, pausedForMs }: LiveKeys): KeyState {
  const ended = Object.fromEntries(former.map(({ id, end }) => [id, end]));
  const { id, status, placement } = organization;
  return { organizationId: id, revision, status, keys, ended, placement, pausedForMs };
}
