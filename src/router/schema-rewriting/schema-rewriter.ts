import type { ErrorFields } from '../../protocol/backend.ts';
import { BoundedMap } from '../../runtime/bounded-map.ts';
import { type Edits, originalPosition } from '../../syntax/edits.ts';
import { ExplainedTasks } from '../placement/shared-database/citus/explained-tasks.ts';
import { withoutWorker } from '../placement/shared-database/citus/worker-errors.ts';
import type { Tenant } from '../tenant.ts';
import { clientChannel } from './channel-names.ts';
import { LARGE_SQL_BYTES, type RewriteOptions, type Rewriting, readsDifferently, rewriteLargeSql, rewriteSql } from './rewrite-sql.ts';
import type { SchemaTarget } from './schema-target.ts';
import { clientSearchPath, serverSearchPath } from './search-path-values.ts';
import { clientQuery, clientText } from './server-text.ts';

/** The platform's replacement for pg_notify adds this to the context of an error; the client must not see it. */
const IN_PG_NOTIFY =
  /^SQL statement "SELECT pg_catalog\.\w+\(postern\.server_channel\(\$1\), \$2\)"\nPL\/pgSQL function \S*pg_notify\(text,text\) line 3 at PERFORM\n?/gm;

/** A session may name any number of channels. For one that is no longer stored, the client reads the server's name without the prefix. */
const LONG_CHANNELS_MAX = 1_000;

/**
 * Rewrites SQL and replies for one session in the `schema` placement. In SQL, `public` becomes the organization's schema; in what
 * the server sends, the organization's schema becomes `public`.
 */
export class SchemaRewriter {
  readonly #target: SchemaTarget;
  readonly #longChannels = new BoundedMap<string, string>({ maxEntries: LONG_CHANNELS_MAX });

  constructor(target: SchemaTarget) {
    this.#target = target;
  }

  rewrite(sql: Buffer, options?: RewriteOptions): Rewriting<Buffer>;
  rewrite(sql: string, options?: RewriteOptions): Rewriting<string>;
  rewrite(sql: string | Buffer, options?: RewriteOptions): Rewriting<string | Buffer> {
    return typeof sql === 'string'
      ? this.#remember(rewriteSql(sql, this.#target, options))
      : this.#remember(rewriteSql(sql, this.#target, options));
  }

  /**
   * Whether the text has to be rewritten differently where `standard_conforming_strings` is off. Of a long text only its backslashes
   * are looked for, because that takes next to no time.
   */
  dependsOnStrings(sql: string | Buffer): boolean {
    if (!sql.includes('\\')) return false;
    return sql.length >= LARGE_SQL_BYTES || readsDifferently(sql, this.#target);
  }

  /** For texts of LARGE_SQL_BYTES or more: works in time slices. */
  async rewriteLarge(sql: Buffer, options?: RewriteOptions): Promise<Rewriting<Buffer>> {
    return this.#remember(await rewriteLargeSql(sql, this.#target, options));
  }

  /** @param edits the edits of the statement that failed */
  error(original: ErrorFields, edits: Edits = []): ErrorFields {
    const fields = withoutWorker(original);
    const { schema } = this.#target;
    const text = (value: string | undefined) => (value === undefined ? undefined : clientText(value, schema));
    const internal =
      fields.internalQuery === undefined ? undefined : clientQuery(fields.internalQuery, fields.internalPosition ?? 1, schema);
    return withoutUndefined({
      ...fields,
      message: clientText(fields.message, schema),
      detail: text(fields.detail),
      hint: text(fields.hint),
      where: text(fields.where?.replace(IN_PG_NOTIFY, '')) || undefined,
      position: fields.position === undefined ? undefined : originalPosition(edits, fields.position),
      internalQuery: internal?.query,
      internalPosition: fields.internalPosition === undefined ? undefined : internal?.position,
      schema: fields.schema === schema ? 'public' : fields.schema,
    });
  }

  /** What changes the values in the rows of one EXPLAIN, one after the other. */
  explained(): (value: Buffer) => Buffer {
    const tasks = new ExplainedTasks(this.#target.schema);
    return (value) => Buffer.from(tasks.row(value.toString('latin1')), 'latin1');
  }

  /** SQL that has been rewritten, with the client's name of the schema. */
  clientSql(sql: string): string {
    return clientText(sql, this.#target.schema);
  }

  /** The client's name for a channel; undefined if the channel is not this organization's. */
  channel(name: string): string | undefined {
    return clientChannel(name, this.#target.channels ?? this.#target.schema, this.#longChannels);
  }

  /** The value to send to the server for a setting's value that the client sent. */
  serverSetting(name: string, value: string): string {
    return name.toLowerCase() === 'search_path' ? serverSearchPath(value, this.#target.schema) : value;
  }

  /** The value to show to the client for a setting's value on the server. */
  clientSetting(name: string, value: string): string {
    return name.toLowerCase() === 'search_path' ? clientSearchPath(value, this.#target.schema) : value;
  }

  #remember<Sql extends string | Buffer>(rewriting: Rewriting<Sql>): Rewriting<Sql> {
    for (const [server, client] of rewriting.longChannels) this.#longChannels.set(server, client);
    return rewriting;
  }
}

/** @returns undefined for a placement that needs no rewriting */
export function schemaRewriterOf({
  organization,
  channels,
  pgNotify,
  hasPreparedTransactions,
}: Pick<Tenant, 'organization' | 'channels' | 'pgNotify' | 'hasPreparedTransactions'>): SchemaRewriter | undefined {
  const { kind, schema, database } = organization.placement;
  return kind === 'schema' ? new SchemaRewriter({ schema, channels, pgNotify, hasPreparedTransactions, database }) : undefined;
}

/** Omits fields that are undefined. */
function withoutUndefined(fields: { [Name in keyof ErrorFields]: ErrorFields[Name] | undefined }): ErrorFields {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as ErrorFields &
    Record<string, string | number>;
}
