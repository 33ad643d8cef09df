/** The names of what is recorded: calls over HTTP, and what happens at the wire door and by operators. */
export const AUDIT_ACTIONS = [
  'auth.signup',
  'auth.me',
  'auth.rotate_key',
  'query',
  'transaction',
  'neon.sql',
  'migrations.apply',
  'migrations.list',
  'audit.list',
  'audit.search',
  'audit.verify',
  'login',
  'login.failed',
  'session.opened',
  'session.closed',
  'statement',
  'key.issued',
  'organization.update',
  'organization.updated',
  'organization.delete',
  'organization.active',
  'organization.suspended',
  'organization.dropping',
  'organization.dropped',
] as const;

export type AuditAction = (typeof AUDIT_ACTIONS)[number];
