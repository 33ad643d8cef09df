/** The schema for which an organization's `public` stands. */
export interface SchemaTarget {
  /** Name of the schema: `org_` and 12 characters of `[a-z0-9]`. It needs no quotes. */
  readonly schema: string;
  /** Prefix of the organization's channels: `[a-z0-9_]`, no longer than the schema's name. Default: that name, which others can guess. */
  readonly channels?: string;
  /** Function to call in place of pg_notify. Default: pg_notify itself, if the platform's own one adds the prefix. */
  readonly pgNotify?: string | undefined;
  /** Whether the server lets transactions be prepared; then the statement is refused. Default: not. */
  readonly hasPreparedTransactions?: boolean | undefined;
  /** Name of the schema's database. Clients use the organization's name for it: `org_….public.users`. */
  readonly database?: string;
}
