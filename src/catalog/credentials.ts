import { SCRAM_FORMER_MAX, type ScramVerifier } from '../auth/scram.ts';
import { ServiceError } from '../errors.ts';
import type { Sql } from './control-pool.ts';
import { type ApiKey, endOf, expiresInMs, isLive, type KeyJson, keyJson, toApiKey } from './key-rows.ts';
import { type DiskState, NO_LIMITS, type OrganizationLimits } from './limits.ts';
import { type Organization, type OrganizationRow, type OrganizationStatus, type Placement, toOrganization } from './organization.ts';
import { pausedForMs } from './pauses.ts';
import { announce, type TopicFormat } from './topics.ts';

/** All keys of an organization share these, because SCRAM sends the salt before the server knows which key the client has. */
export type SaltOfKeys = Pick<ScramVerifier, 'salt' | 'iterations'>;

/** Why a key is no longer valid. */
export type KeyEnd = 'rotated' | 'revoked' | 'expired';

/** A key that is no longer valid. A login with it fails, with an error that says why. */
export interface FormerKey {
  readonly id: string;
  readonly organizationId: string;
  readonly prefix: string;
  readonly end: KeyEnd;
  readonly endedAt: Date;
}

/** A former key that a SCRAM exchange can recognize: it has the same salt and iterations as the live ones. */
export interface ProvableFormerKey extends FormerKey {
  readonly storedKey: Buffer;
}

/**
 * A live key and its organization. There is one object for a live key as long as something refers to it or its
 * signal. `revoked` aborts with a ServiceError when the key ends or its networks change (`key_revoked`), or the organization may no
 * longer log in (`organization_suspended`, `key_revoked`). The credential of a suspended organization is already aborted,
 * so that a client that has proven the key gets the reason. Check `revoked` before accepting any login.
 */
export interface Credential {
  readonly organization: Organization;
  readonly key: ApiKey;
  readonly revoked: AbortSignal;
}

/** What a SCRAM exchange with an organization needs. */
export interface OrganizationCredentials {
  readonly organization: Organization;
  readonly salt: SaltOfKeys;
  /** The live keys, the oldest first. */
  readonly live: readonly Credential[];
  /** The last few former keys, the latest first. */
  readonly former: readonly ProvableFormerKey[];
}

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
    select o.id, o.name, o.email, o.status, o.placement, o.limits, o.disk_state, o.created_at, o.revision, ${pausedForMs(sql)} as paused_for_ms,
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
  const { id, status, placement, limits, diskState } = organization;
  return { organizationId: id, revision, status, keys, ended, placement, limits, diskState, pausedForMs };
}

/** The part of a live key that may change while it is in use. */
interface KeyValidity {
  readonly id: string;
  /** Grows when the sessions that were opened with the key have to end. */
  readonly version: number;
  /** How long it is still valid, by the control server's clock; null: until it is revoked. */
  readonly expiresInMs: number | null;
}

/** The state of an organization and its keys that shows whether credentials read earlier are still valid. */
export interface KeyState {
  readonly organizationId: string;
  readonly revision: number;
  readonly status: OrganizationStatus;
  readonly keys: readonly KeyValidity[];
  /** How the last few former keys have ended, by their ids. */
  readonly ended: Readonly<Record<string, KeyEnd>>;
  /** Where the data lives; undefined: a process of an earlier version does not tell. */
  readonly placement: Placement | undefined;
  /** Undefined: as with the placement. */
  readonly limits: OrganizationLimits | undefined;
  /** Undefined: as with the placement. */
  readonly diskState: DiskState | undefined;
  /** How long the organization is still paused; null: it is not. */
  readonly pausedForMs: number | null;
}

/** A notification; it has to fit in 8,000 bytes with a hundred keys. `keyId` is for processes of a version with one key. */
interface Notification {
  readonly organizationId: string;
  readonly revision: number;
  readonly status: OrganizationStatus;
  readonly keyId: string;
  readonly keys: readonly (readonly [id: string, version: number, expiresInMs: number | null])[];
  readonly ended: readonly (readonly [id: string, end: KeyEnd])[];
  readonly placement: Placement | undefined;
  readonly limits: Partial<OrganizationLimits> | undefined;
  readonly diskState: DiskState | undefined;
  readonly pausedForMs: number | null;
}

/** The states of those organizations that exist. */
export async function loadStates(sql: Sql, organizationIds: readonly string[]): Promise<KeyState[]> {
  const rows = await sql<{ state: string }[]>`
    select json_build_object(
      'organizationId', o.id, 'revision', o.revision, 'status', o.status, 'placement', o.placement, 'limits', o.limits,
      'diskState', o.disk_state, 'pausedForMs', ${pausedForMs(sql)},
      'keys', array_to_json(array(
        select json_build_array(k.id, k.version, ${expiresInMs(sql)}) from postern.api_keys k
        where k.organization_id = o.id and ${isLive(sql)} order by k.created_at, k.id)),
      'ended', array_to_json(array(
        select json_build_array(k.id, ${endOf(sql)}) from postern.api_keys k
        where k.organization_id = o.id and not ${isLive(sql)}
        order by coalesce(k.revoked_at, k.expires_at) desc limit ${SCRAM_FORMER_MAX}))
    )::text as state
    from postern.organizations o
    where o.id in (select jsonb_array_elements_text(${JSON.stringify(organizationIds)}::text::jsonb))`;
  return rows.flatMap(({ state }) => parseChange(state) ?? []);
}

/**
 * Notifies every process of the organization's keys and status, once the transaction is committed.
 * @returns the same state, so that this process need not wait for the notification
 */
export async function notifyChange(sql: Sql, organizationId: string): Promise<KeyState> {
  const [state] = await loadStates(sql, [organizationId]);
  if (state === undefined) throw new ServiceError('not_found', `there is no organization "${organizationId}"`);
  await announce(sql, CREDENTIALS, state);
  return state;
}

/** Changes of organizations and their keys. */
export const CREDENTIALS: TopicFormat<KeyState> = {
  channel: 'postern_credentials',
  encode: (states) =>
    states.map((state) => {
      const notification: Notification = {
        ...state,
        keyId: state.keys[0]?.id ?? '',
        keys: state.keys.map(({ id, version, expiresInMs }) => [id, version, expiresInMs]),
        ended: Object.entries(state.ended),
      };
      return JSON.stringify(notification);
    }),
  decode: (payload) => [parseChange(payload) ?? []].flat(),
};

/** @returns undefined for a payload that {@link notifyChange} did not send */
function parseChange(payload: string): KeyState | undefined {
  try {
    // A version with one key does not tell which keys there are: what was opened with any of them ends, and they are read again.
    const notification: Partial<Notification> = JSON.parse(payload);
    const { organizationId, revision, status, keys = [], ended = [], placement, limits, diskState, pausedForMs = null } = notification;
    if (organizationId === undefined || revision === undefined || status === undefined) return undefined;
    return {
      organizationId,
      revision,
      status,
      keys: keys.map(([id, version, expiresInMs]) => ({ id, version, expiresInMs })),
      ended: Object.fromEntries(ended),
      placement,
      limits: limits && { ...NO_LIMITS, ...limits },
      diskState,
      pausedForMs,
    };
  } catch {
    return undefined;
  }
}
