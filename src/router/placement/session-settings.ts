import type { Placement } from '../../catalog/organizations/organization.ts';

export interface SessionLimits {
  /** 0: none. */
  readonly statementTimeoutMs: number;
  /** 0: none. */
  readonly idleInTransactionTimeoutMs: number;
}

/**
 * The startup packet's `options` for a session of this organization. They outrank `ALTER ROLE … SET` and are what `RESET ALL`
 * and `DISCARD ALL` return to, so no setting a tenant leaves on its role can keep it from logging in or out of its place.
 * @param serverVersion as `server_version_num`
 * @see https://www.postgresql.org/docs/current/protocol-message-formats.html#PROTOCOL-MESSAGE-FORMATS-STARTUPMESSAGE
 */
export function sessionOptions(placement: Placement, limits: SessionLimits, serverVersion: number): string {
  const settings: Readonly<Record<string, string>> = {
    // An organization's schema stands where `public` does, so that it reads back as the same.
    search_path: `"$user", ${placement.schema}`,
    role: 'none',
    statement_timeout: String(limits.statementTimeoutMs),
    idle_in_transaction_session_timeout: String(limits.idleInTransactionTimeoutMs),
    idle_session_timeout: '0',
    lock_timeout: '0',
    ...(serverVersion >= 170_000 ? { transaction_timeout: '0' } : {}),
    default_transaction_read_only: 'off',
    default_transaction_isolation: 'read committed',
    default_transaction_deferrable: 'off',
    local_preload_libraries: '',
  };
  return Object.entries(settings)
    .map(([name, value]) => `-c ${escapeOption(`${name}=${value}`)}`)
    .join(' ');
}

/** The server splits at white space and takes what follows a backslash as it is (pg_split_opts). */
function escapeOption(text: string): string {
  return text.replace(/[\\\s]/g, '\\$&');
}
