/** Where an organization's `public` really is. */
export interface Place {
  /** Name of the schema: `org_` and 12 of `[a-z0-9]`, which needs no quotes. */
  readonly schema: string;
  /** Stands before the names of its channels: `[a-z0-9_]`, as short as the schema's name. Default: the schema's name, which others can guess. */
  readonly channels?: string;
  /** Name of the database it is in. Clients call it by the organization's name: `org_….public.users`. */
  readonly database?: string;
}
