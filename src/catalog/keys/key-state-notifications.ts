import { SCRAM_FORMER_MAX } from '../../auth/scram.ts';
import { ServiceError } from '../../errors.ts';
import type { Sql } from '../database/control-connection.ts';
import type { OrganizationStatus, Placement } from '../organizations/organization.ts';
import { pausedForMs } from '../organizations/pause-registry.ts';
import type { KeyEnd } from './credential.ts';
import { endOf, expiresInMs, isLive } from './key-rows.ts';

/** The channel on which changes are notified. */
export const CREDENTIALS_CHANNEL = 'postern_credentials';

/** The part of a live key that may change while it is in use. */
export interface KeyValidity {
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
  readonly pausedForMs: number | null;
}

/** The states of those organizations that exist. */
export async function loadStates(sql: Sql, organizationIds: readonly string[]): Promise<KeyState[]> {
  const rows = await sql<{ state: string }[]>`
    select json_build_object(
      'organizationId', o.id, 'revision', o.revision, 'status', o.status, 'placement', o.placement, 'pausedForMs', ${pausedForMs(sql)},
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
  const notification: Notification = {
    ...state,
    keyId: state.keys[0]?.id ?? '',
    keys: state.keys.map(({ id, version, expiresInMs }) => [id, version, expiresInMs]),
    ended: Object.entries(state.ended),
  };
  await sql`select pg_notify(${CREDENTIALS_CHANNEL}, ${JSON.stringify(notification)})`;
  return state;
}

/** @returns undefined for a payload that {@link notifyChange} did not send */
export function parseChange(payload: string): KeyState | undefined {
  try {
    // A version with one key does not tell which keys there are: what was opened with any of them ends, and they are read again.
    const notification: Partial<Notification> = JSON.parse(payload);
    const { organizationId, revision, status, keys = [], ended = [], placement, pausedForMs = null } = notification;
    if (organizationId === undefined || revision === undefined || status === undefined) return undefined;
    return {
      organizationId,
      revision,
      status,
      keys: keys.map(([id, version, expiresInMs]) => ({ id, version, expiresInMs })),
      ended: Object.fromEntries(ended),
      placement,
      pausedForMs,
    };
  } catch {
    return undefined;
  }
}
