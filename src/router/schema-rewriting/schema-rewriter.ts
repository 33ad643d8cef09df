import type { ErrorFields } from '../../protocol/backend.ts';
import { BoundedMap } from '../../runtime/bounded-map.ts';
import type { Tenant } from '../tenant.ts';
import { clientChannel } from './channels.ts';
import { clientQuery, clientText } from './client-text.ts';
import { type Edits, originalPosition } from './edits/edits.ts';
import { type Rewriting, rewriteLargeSql, rewriteSql } from './rewrite.ts';
import type { SchemaTarget } from './schema-target.ts';
import { clientSearchPath, serverSearchPath } from './settings.ts';

/** What stands for the server's pg_notify has no part in an error of that. */
const IN_PG_NOTIFY =
  /^SQL statement "SELECT pg_catalog\.\w+\(postern\.server_channel\(\$1\), \$2\)"\nPL\/pgSQL function \S*pg_notify\(text,text\) line 3 at PERFORM\n?/gm;

/** A session may name channels without an end. Of one that has been forgotten it is told the server's name, without the prefix. */
const LONG_CHANNELS_MAX = 1_000;

/** Lines in which Citus names the machine that a part of the statement ran on. */
const WORKER_ADDRESS = /^.*\bwhile executing command on \S+:\d+.*\n?/gm;

/**
 * How one session in the `schema` placement sees its place: SQL goes out with the organization's schema where the client
 * wrote `public`, and what the server says comes back the other way.
 */
export class SchemaRewriter {
  readonly #place: SchemaTarget;
  readonly #longChannels = new BoundedMap<string, string>({ maxEntries: LONG_CHANNELS_MAX });

  constructor(place: SchemaTarget) {
    this.#place = place;
  }

  rewrite(sql: Buffer): Rewriting<Buffer>;
  rewrite(sql: string): Rewriting<string>;
  rewrite(sql: string | Buffer): Rewriting<string | Buffer> {
    return typeof sql === 'string' ? this.#remember(rewriteSql(sql, this.#place)) : this.#remember(rewriteSql(sql, this.#place));
  }

  /** For texts of LARGE_SQL_BYTES and more: lets others run in between. */
  async rewriteLarge(sql: Buffer): Promise<Rewriting<Buffer>> {
    return this.#remember(await rewriteLargeSql(sql, this.#place));
  }

  /** @param edits of the statement that the error is about */
  error(fields: ErrorFields, edits: Edits = []): ErrorFields {
    const { schema } = this.#place;
    const text = (value: string | undefined) => (value === undefined ? undefined : clientText(value, schema));
    const internal =
      fields.internalQuery === undefined ? undefined : clientQuery(fields.internalQuery, fields.internalPosition ?? 1, schema);
    return without({
      ...fields,
      message: clientText(fields.message, schema),
      detail: text(fields.detail),
      hint: text(fields.hint),
      where: text(fields.where?.replace(WORKER_ADDRESS, '').replace(IN_PG_NOTIFY, '')) || undefined,
      position: fields.position === undefined ? undefined : originalPosition(edits, fields.position),
      internalQuery: internal?.query,
      internalPosition: fields.internalPosition === undefined ? undefined : internal?.position,
      schema: fields.schema === schema ? 'public' : fields.schema,
    });
  }

  /** The client's name for a channel; undefined for one that is not this organization's. */
  channel(name: string): string | undefined {
    return clientChannel(name, this.#place.channels ?? this.#place.schema, this.#longChannels);
  }

  /** A setting's value as the server has to be told it. */
  serverSetting(name: string, value: string): string {
    return name.toLowerCase() === 'search_path' ? serverSearchPath(value, this.#place.schema) : value;
  }

  /** A setting's value as the client is to read it. */
  clientSetting(name: string, value: string): string {
    return name.toLowerCase() === 'search_path' ? clientSearchPath(value, this.#place.schema) : value;
  }

  #remember<Sql extends string | Buffer>(rewriting: Rewriting<Sql>): Rewriting<Sql> {
    for (const [server, client] of rewriting.longChannels) this.#longChannels.set(server, client);
    return rewriting;
  }
}

/** @returns undefined for a placement in which nothing needs rewriting */
export function schemaRewriterOf({
  organization,
  channels,
  pgNotify,
}: Pick<Tenant, 'organization' | 'channels' | 'pgNotify'>): SchemaRewriter | undefined {
  const { kind, schema, database } = organization.placement;
  return kind === 'schema' ? new SchemaRewriter({ schema, channels, pgNotify, database }) : undefined;
}

/** Optional fields are absent rather than undefined. */
function without(fields: { [Name in keyof ErrorFields]: ErrorFields[Name] | undefined }): ErrorFields {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as ErrorFields &
    Record<string, string | number>;
}
