import { type ErrorFields, withOnlyValue, withValues } from '../protocol/backend.ts';
import type { Tenant } from '../router/lease.ts';
import { BoundedMap } from '../runtime/bounded-map.ts';
import { applyEdits, EditList, type Edits, originalPosition, rewrittenPosition } from '../syntax/edits.ts';
import { replaceOutsideLiterals } from '../syntax/redaction.ts';
import { isQuotedIdentifier } from '../syntax/scanner.ts';
import { CHANNEL_MAX_BYTES, clientChannel, clientSearchPath, type SchemaTarget, serverSearchPath } from './names.ts';
import { LARGE_SQL_BYTES, type RewriteOptions, type Rewriting, readsDifferently, rewriteLargeSql, rewriteSql } from './rewrite-sql.ts';

/** The platform's replacement for pg_notify adds this to the context of an error; the client must not see it. */
const IN_PG_NOTIFY =
  /^SQL statement "SELECT pg_catalog\.\w+\(postern\.server_channel\(\$1\), \$2\)"\nPL\/pgSQL function \S*pg_notify\(text,text\) line 3 at PERFORM\n?/gm;

const PUBLIC = Buffer.from('public');
/** A longer value stays as it is: it would take milliseconds to read. */
const CATALOG_VALUE_MAX_BYTES = 65_536;
/** Arrays and composites in binary format contain lesser bytes. */
const FIRST_IN_TEXT = 0x09;

/** The context of what stands in the place of CREATE SCHEMA. */
const IN_CREATE_SCHEMA = /^PL\/pgSQL function inline_code_block line 1 at RAISE(?:\n|$)/;

/** The same of the platform's functions for advisory locks. */
const IN_ADVISORY_LOCK =
  /^(?:SQL statement "SELECT pg_catalog\.postern_pg_advisory\w+\(.*\)"\nPL\/pgSQL function \S*pg_advisory\w+\([a-z, ]+\) line 2 at PERFORM|SQL function "pg_(?:try_)?advisory_\w+" statement 1)\n?/gm;

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
      where: text(withoutOwn(fields)) || undefined,
      position: fields.position === undefined ? undefined : originalPosition(edits, fields.position),
      internalQuery: internal?.query,
      internalPosition: fields.internalPosition === undefined ? undefined : internal?.position,
      schema: fields.schema === schema ? 'public' : fields.schema,
    });
  }

  /**
   * What changes the rows of one statement, one after the other: the body of a DataRow becomes a whole message.
   * @param shows what the rows have: an EXPLAIN's plan, the search_path, or names of the catalogs
   */
  rows(shows: 'plan' | 'search_path' | 'names'): (body: Buffer) => Buffer {
    if (shows === 'names') return (body) => withValues(body, (value) => this.#catalogValue(value));
    if (shows === 'search_path') return (body) => withValues(body, (value) => this.#pathValue(value, body.readUInt16BE(0) === 1));
    const tasks = new ExplainedTasks(this.#target.schema);
    return (body) => withOnlyValue(body, (value) => Buffer.from(tasks.row(value.toString('latin1')), 'latin1'));
  }

  /** A search_path, or another value: beside others, only a list or quotes show that it is one. An organization's role is called as its schema. */
  #pathValue(value: Buffer, isAlone: boolean): Uint8Array {
    if (value.length > CATALOG_VALUE_MAX_BYTES || !value.includes(this.#target.schema)) return value;
    if (!isAlone && !value.includes(',') && !value.includes('"')) return value;
    return Buffer.from(this.clientSetting('search_path', value.toString('latin1')), 'latin1');
  }

  /**
   * A value in the answer to a query of the catalogs about `public`, or of channels, for the client: the schema's name, text with names
   * that it qualifies, or a channel. @returns the same object if it stays
   */
  #catalogValue(value: Buffer): Uint8Array {
    if (value.length <= CHANNEL_MAX_BYTES) {
      const channel = this.channel(value.toString());
      if (channel !== undefined) return Buffer.from(channel);
    }
    const { schema } = this.#target;
    if (value.length < schema.length || value.length > CATALOG_VALUE_MAX_BYTES || !value.includes(schema)) return value;
    if (value.length === schema.length) return PUBLIC;
    if (value.some((byte) => byte < FIRST_IN_TEXT)) return value;
    return Buffer.from(clientText(value.toString('latin1'), schema), 'latin1');
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

/** The context of an error or notice, without what only the platform's own SQL has added. */
function withoutOwn({ code, where }: ErrorFields): string | undefined {
  const context = where?.replace(IN_PG_NOTIFY, '').replace(IN_ADVISORY_LOCK, '');
  return code === '42P06' ? context?.replace(IN_CREATE_SCHEMA, '') : context;
}

/** Omits fields that are undefined. */
function withoutUndefined(fields: { [Name in keyof ErrorFields]: ErrorFields[Name] | undefined }): ErrorFields {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as ErrorFields &
    Record<string, string | number>;
}

/**
 * Rewrites text of the server (the message, detail, hint or context of an error) for the client. The organization's schema becomes
 * `public` where it qualifies a name (`org_x.users`, `"org_x"."User"`, `"org_x.users"`), and after the word "schema". It stays
 * elsewhere, because the role and the database have the same name, and clients know it. It also stays after "schema" in other
 * languages than English.
 */
export function clientText(text: string, schema: string): string {
  return text.includes(schema) ? applyEdits(text, schemaEdits(text, schema)) : text;
}

/**
 * As {@link clientText}, for the internal query of an error (field `q`) and the position in it (field `p`), which counts
 * characters from 1.
 */
export function clientQuery(query: string, position: number, schema: string): { query: string; position: number } {
  const edits = schemaEdits(query, schema);
  return { query: applyEdits(query, edits), position: rewrittenPosition(edits, position) };
}

function schemaEdits(text: string, schema: string): EditList {
  const list = new EditList(text, false);
  for (const { index } of text.matchAll(schemaMentions(schema))) list.add(index, index + schema.length, 'public');
  return list;
}

/** Matches the schema as a whole identifier, if a dot and a name follow, or if "schema" precedes. */
function schemaMentions(schema: string): RegExp {
  const whole = String.raw`(?<![\w$\u0080-\uffff])${schema}(?![\w$\u0080-\uffff])`;
  return new RegExp(String.raw`${whole}(?="?\s?\.\s?[^\s.])|(?<=\bschema "?)${whole}`, 'gi');
}

/** Lines of an error's context in which Citus names the worker on which a part of the statement ran. */
const WORKER_ADDRESS = /^.*\bwhile executing command on \S+:\d+.*\n?/gm;

/** A worker's names of tables and what belongs to them end in the number of the shard. */
const SHARD_NUMBER = /(\b(?:table|relation|constraint|index|sequence|view) "[^"]*)_\d{6,}(?=")/g;

/** Class 08, and the internal error that Citus reports for a session of before. */
const CONNECTION_CODE = /^(08|XX000)/;
const CONNECTION_FAILED = /^(connection to the remote node|failure on connection|failed to connect|could not (establish|connect))/;

/** Messages of a worker that was not reached, as libpq and the server word them. A statement that was running there may have been committed. */
const NOT_REACHED =
  /Connection refused|timeout expired|could not translate host name|No route to host|(Host|Network) is unreachable|the database system is/i;

/** What a client may know of an error that Citus reports of a worker: neither its address nor the names of shards. */
function withoutWorker(fields: ErrorFields): ErrorFields {
  const { code, severity, message, detail, where } = fields;
  if (CONNECTION_CODE.test(code) && CONNECTION_FAILED.test(message)) {
    const isRetryable = NOT_REACHED.test(message);
    return {
      severity,
      code: isRetryable ? '57P03' : '08006',
      message: `the connection to the server that holds this data ${isRetryable ? 'failed' : 'was lost'}`,
    };
  }
  const context = where?.replace(WORKER_ADDRESS, '');
  if (context === where || context === undefined) return fields;
  const named = (text: string) => text.replace(SHARD_NUMBER, '$1');
  return { ...fields, message: named(message), ...(detail === undefined ? {} : { detail: named(detail) }), where: context };
}

/** A longer row stays as it is: it would take milliseconds to read. */
export const PLAN_ROW_MAX_CHARACTERS = 131_072;

/** Where the tasks of a job begin, in each format of EXPLAIN; or what runs on the coordinator again, after the tasks of another part. */
const BOUNDARY = /^ *(?:(["<]?Tasks[ -]Shown\b)|-> {2}Distributed Subplan |["<]?PlannedStmt\b)/gm;
const NODE = /^( *(?:- )?["<]?Node["<>: ]{1,4})host=\S+ port=\d+ dbname=[^\s"<]+/gm;

const NAME = String.raw`(?:"(?:[^"]|"")*|[\w$\x80-\xff]*)_(\d{6,})(?![\w$(])`;
/** A table in the text format, not a function, CTE or subquery. */
const SCANNED = new RegExp(
  String.raw`^ *(?:->  )?(?:(?:Parallel|Async) )*(?:(?:Seq|Sample|Index|Index Only|Bitmap Heap|Tid|Tid Range|Foreign|Custom) Scan\b.*?|(?:Foreign )?(?:Insert|Update|Delete)|Merge) on (?:\w+\.)?${NAME}`,
  'gm',
);
const RELATION_NAME = /^ *(?:- )?["<]?Relation[ -]Name["<>: ]{1,4}.*_(\d{6,})["<]/gm;
/** The client's name for the table is the table's own: then PostgreSQL shows it once. */
const REPEATED_NAME = /(?<= on (?:\w+\.)?)("(?:[^"]|"")*"|[^\s"]+) \1(?= |$)/;

const JSON_STRING = /"(?:[^"\\]|\\.)*"?/g;
const XML_TEXT = /(?<=>)[^<>]+(?=<)/g;

/**
 * The rows of one EXPLAIN in the words of the client: without the workers' addresses, the numbers of shards and the organization's schema.
 * Only what Citus says of its tasks is changed, and no string in it. The shards are those whose tables the plan shows, so that a name which
 * ends in digits stays whole.
 */
export class ExplainedTasks {
  readonly #queried: RegExp;
  readonly #schemaProperty: RegExp;
  readonly #qualifier: RegExp;
  /** What may have to be changed. */
  readonly #suspect: RegExp;
  readonly #suspectLine: RegExp;
  readonly #shards = new Set<string>();
  #format: 'text' | 'json' | 'xml' | undefined;
  #isInTasks = false;

  /** @param schema the organization's, which needs no quotes */
  constructor(schema: string) {
    const suspect = `(?:_\\d{6}|${schema})`;
    this.#queried = new RegExp(String.raw`(?:\b(?:FROM|JOIN|INTO|UPDATE|USING|ONLY)|,) \(*${schema}\.${NAME}`, 'g');
    this.#schemaProperty = new RegExp(`^( *(?:- )?["<]?Schema["<>: ]{1,4})${schema}(?=["<])`, 'gm');
    this.#qualifier = new RegExp(String.raw`(?<![\w$])${schema}(?=\.)`, 'g');
    this.#suspect = new RegExp(suspect);
    this.#suspectLine = new RegExp(`^.*${suspect}.*$`, 'gm');
  }

  /** @param row the next row, in any encoding that contains ASCII, decoded as Latin-1: a line of the text format, or the whole plan */
  row(row: string): string {
    this.#format ??= formatOf(row);
    if (row.length > PLAN_ROW_MAX_CHARACTERS || (!this.#isInTasks && !row.includes('Tasks'))) return row;
    let shown = '';
    let from = 0;
    for (const { index, 1: tasks } of row.matchAll(BOUNDARY)) {
      shown += this.#part(row.slice(from, index));
      from = index;
      this.#isInTasks = tasks !== undefined;
    }
    return shown + this.#part(row.slice(from));
  }

  /** @param part of a row, from one boundary to the next */
  #part(part: string): string {
    if (!this.#isInTasks) return part;
    this.#learn(part.matchAll(this.#format === 'text' ? SCANNED : RELATION_NAME));
    return part
      .replace(NODE, '$1worker')
      .replace(this.#schemaProperty, '$1public')
      .replace(this.#suspectLine, (line) => this.#line(line));
  }

  #learn(tables: Iterable<RegExpExecArray>): void {
    for (const [, shard = ''] of tables) this.#shards.add(shard);
  }

  #line(line: string): string {
    if (this.#format === 'text') return this.#expression(line).replace(REPEATED_NAME, '$1');
    if (this.#format === 'xml') return line.replace(XML_TEXT, (text) => this.#property(text));
    return line.replace(JSON_STRING, (string) => {
      if (!this.#suspect.test(string)) return string;
      const text = String(JSON.parse(string));
      const changed = this.#property(text);
      return changed === text ? string : JSON.stringify(changed);
    });
  }

  /** A name, which may have quotes in it that do not begin a string, or an expression. */
  #property(text: string): string {
    const end = /_(\d{6,})$/.exec(text);
    return end !== null && this.#shards.has(end[1] ?? '') ? text.slice(0, end.index) : this.#expression(text);
  }

  #expression(text: string): string {
    return replaceOutsideLiterals(
      text,
      (code) => this.#code(code),
      (_, kind) => isQuotedIdentifier(kind),
    );
  }

  #code(code: string): string {
    this.#learn(code.matchAll(this.#queried));
    return code
      .replace(/_(\d{6,})(?![\w$])/g, (suffix, shard: string) => (this.#shards.has(shard) ? '' : suffix))
      .replace(this.#qualifier, 'public');
  }
}

function formatOf(beginning: string): 'text' | 'json' | 'xml' {
  if (beginning.startsWith('<explain')) return 'xml';
  // Strings in YAML are written as in JSON.
  return beginning.startsWith('[') || beginning.startsWith('- ') ? 'json' : 'text';
}
