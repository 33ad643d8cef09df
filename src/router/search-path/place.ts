/** Where an organization's `public` really is. */
export interface Place {
  /** Name of the schema: `org_` and 12 of `[a-z0-9]`, which needs no quotes. Also prefixes its channels. */
  readonly schema: string;
  /** Name of the database it is in. Clients call it by the organization's name: `org_….public.users`. */
  readonly database?: string;
}
