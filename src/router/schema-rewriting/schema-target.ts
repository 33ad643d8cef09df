/** Where an organization's `public` really is. */
export interface SchemaTarget {
  /** Name of the schema: `org_` and 12 of `[a-z0-9]`, which needs no quotes. */
  readonly schema: string;
  /** Stands before the names of its channels: `[a-z0-9_]`, as short as the schema's name. Default: the schema's name, which others can guess. */
  readonly channels?: string;
  /** What is called in place of pg_notify. Default: that itself, which puts the prefix before the name of a channel. */
  readonly pgNotify?: string | undefined;
  /** Name of the database it is in. Clients call it by the organization's name: `org_….public.users`. */
  readonly database?: string;
}
