import type { Placement } from '../../catalog/organization.ts';

export interface SessionLimits {
  /** 0: none. */
  readonly statementTimeoutMs: number;
  /** 0: none. */
  readonly idleInTransactionTimeoutMs: number;
}

/**
 * The startup packet's `options` for a session of this organization. They take precedence over `ALTER ROLE … SET`, and `RESET ALL`
 * and `DISCARD ALL` return to them. So no setting on the tenant's role can prevent a login or change its search path.
 * @param serverVersion as `server_version_num`
 * @see https://www.postgresql.org/docs/current/protocol-message-formats.html#PROTOCOL-MESSAGE-FORMATS-STARTUPMESSAGE
 */
export function sessionOptions(placement: Placement, limits: SessionLimits, serverVersion: number): string {
  const settings: Readonly<Record<string, string>> = {
    // The organization's schema is in the position of `public`, so that the value can be rewritten back.
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

/** The server splits at white space that no backslash precedes (pg_split_opts). */
function escapeOption(text: string): string {
  return text.replace(/[\\\s]/g, '\\$&');
}
